import json

import pytest

from millstream.pipeline.record import RecordForm, RecordTemplate, TelemetryRecord, format_time, parse_time_ms

RECORD = TelemetryRecord(
    time_ms=1752871354000,
    metric_name="DCGM_FI_DEV_GPU_UTIL",
    uuid="GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
    value=85.0,
    gpu_id="3",
    device="nvidia3",
    model_name='NVIDIA "H100" 80GB',
    hostname="mtv5-dgx1-hgpu-031",
    pod="train-1",
    labels_raw='DCGM_FI_DRIVER_VERSION="535.129.03",gpu="3"',
)


def test_the_flat_form_has_every_field_by_its_name_in_the_export() -> None:
    assert json.loads(RECORD.to_json()) == {
        "timestamp": "2025-07-18T20:42:34Z",
        "metric_name": "DCGM_FI_DEV_GPU_UTIL",
        "gpu_id": "3",
        "device": "nvidia3",
        "uuid": "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
        "modelName": 'NVIDIA "H100" 80GB',
        "Hostname": "mtv5-dgx1-hgpu-031",
        "container": "",
        "pod": "train-1",
        "namespace": "",
        "value": 85,
        "labels_raw": 'DCGM_FI_DRIVER_VERSION="535.129.03",gpu="3"',
    }


def test_the_nested_form_names_the_gpu_by_its_uuid_and_keeps_labels_apart() -> None:
    assert json.loads(RECORD.to_json(RecordForm.NESTED)) == {
        "timestamp": "2025-07-18T20:42:34Z",
        "metric_name": "DCGM_FI_DEV_GPU_UTIL",
        "gpu_id": "GPU-5fd4f087-86f3-7a43-b711-4771313afc50",
        "device": "nvidia3",
        "hostname": "mtv5-dgx1-hgpu-031",
        "value": 85,
        "labels": {
            "driver_version": "535.129.03",
            "model_name": 'NVIDIA "H100" 80GB',
            "gpu": "3",
            "pod": "train-1",
        },
    }


def test_the_envelope_holds_the_nested_form_with_its_key_and_headers() -> None:
    envelope = json.loads(RECORD.to_json(RecordForm.ENVELOPE))
    assert envelope["key"] == RECORD.uuid
    assert envelope["value"] == json.loads(RECORD.to_json(RecordForm.NESTED))
    assert envelope["headers"]["content-type"] == "application/json"


@pytest.mark.parametrize("form", RecordForm)
@pytest.mark.parametrize("value", [0, 85, 66.781, -3.5, 1e-7, 9.3e17])
def test_a_filled_template_is_the_record_itself(form: RecordForm, value: float) -> None:
    template = RecordTemplate.of(RECORD, form)
    record = TelemetryRecord(
        **{**{f: getattr(RECORD, f) for f in RECORD.__struct_fields__}, "value": float(value)}
    )
    assert json.loads(template.fill("2025-07-18T20:42:34Z", value)) == json.loads(record.to_json(form))


def test_a_record_can_be_told_at_another_time() -> None:
    assert json.loads(RECORD.to_json(time_ms=1_500))["timestamp"] == "1970-01-01T00:00:01.500Z"


@pytest.mark.parametrize(
    "text", ["2025-07-18T20:42:34Z", "2025-07-18T20:42:34.007Z", "1969-12-31T23:59:59.999Z"]
)
def test_times_are_written_as_they_were_read(text: str) -> None:
    assert format_time(parse_time_ms(text)) == text


def test_a_time_in_another_zone_is_the_same_moment() -> None:
    assert parse_time_ms("2025-07-18T22:42:34+02:00") == parse_time_ms("2025-07-18T20:42:34Z")


@pytest.mark.parametrize("text", ["2025-07-18T20:42:34", "yesterday", "", "2025-13-01T00:00:00Z"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no time zone|Invalid isoformat|month must be"):
        parse_time_ms(text)
