"""What a door (HTTP, MQTT, the console) sees of a cluster: small typed interfaces, values in and values out."""
