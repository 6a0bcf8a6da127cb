"""UpdateFeatures, versions 0 to 2: a feature stays at the one level that is served; only that level is taken."""

import msgspec
from kio.schema.update_features.v1.response import UpdatableFeatureResult
from kio.schema.update_features.v2.request import UpdateFeaturesRequest

from millstream.broker.api.call import Call
from millstream.protocol.errors import ErrorCode
from millstream.protocol.features import FEATURES


class UpdateFeaturesAnswer(msgspec.Struct, frozen=True):
    """`results` are of versions 0 and 1; version 2 has an error of the whole request alone."""

    error_code: ErrorCode
    error_message: str | None
    results: tuple[UpdatableFeatureResult, ...]


def handle(request: UpdateFeaturesRequest, _call: Call) -> UpdateFeaturesAnswer:
    wanted = {each.feature: each.max_version_level for each in request.feature_updates}
    results = tuple(_result(name, level) for name, level in wanted.items())
    refused = next((each for each in results if each.error_code != ErrorCode.NONE), None)
    if refused is None:
        return UpdateFeaturesAnswer(ErrorCode.NONE, None, results)
    return UpdateFeaturesAnswer(refused.error_code, refused.error_message, results)


def _result(name: str, level: int) -> UpdatableFeatureResult:
    served = FEATURES.get(name)
    if served == level:
        return UpdatableFeatureResult(feature=name, error_code=ErrorCode.NONE, error_message=None)
    known = "this cluster does not have it" if served is None else f"its only level here is {served}"
    return UpdatableFeatureResult(
        feature=name,
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=f"{name} cannot be set to {level}: {known}",
    )
