"""The MQTT door: devices publish to the log and subscribe to it, with MQTT 3.1.1 and 5.

Its inputs are MQTT connections and `Doors`; it knows nothing of the node behind them. `connection` and the modules it
imports decide without sockets what a client is sent. `rules` and `record_form` map MQTT topics to records. `client` and
the listeners do the input and output; `subscribers` and `reading` read the log for subscribers.
"""
