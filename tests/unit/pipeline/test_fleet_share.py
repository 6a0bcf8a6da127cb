from collections import Counter

import pytest

from millstream.pipeline.fleet import Share


def test_every_gpu_belongs_to_exactly_one_instance() -> None:
    gpus = [f"GPU-{number}" for number in range(3_000)]
    shares = [Share.parse(f"{number}/3") for number in (1, 2, 3)]
    owners = Counter(share for gpu in gpus for share in shares if share.holds(gpu))
    assert owners.total() == len(gpus)
    assert all(800 < owners[share] < 1_200 for share in shares)


def test_a_single_instance_has_all() -> None:
    assert Share().holds("GPU-1")
    assert Share.parse("1/1") == Share()


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "a/b", "1/0", "-1/3", "1/3/5"])
def test_a_share_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form 1/3"):
        Share.parse(text)
