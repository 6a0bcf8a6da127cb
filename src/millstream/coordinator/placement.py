"""Which partition of an internal topic keeps a key: Kafka's rule, so that tools and clients agree."""


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, in 32-bit signed arithmetic."""
    value = 0
    if text.isascii():
        for byte in text.encode():
            value = (value * 31 + byte) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(units), 2):
            value = (value * 31 + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partition_count: int) -> int:
    value = java_string_hash(key)
    # Java's abs of the smallest integer is negative; Kafka uses 0 there.
    return 0 if value == -(1 << 31) else abs(value) % partition_count
