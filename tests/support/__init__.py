"""What tests of the whole program share: nodes started as processes of their own."""
