"""The records behind TensorBoard's table of hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft._base.types import Arg, Kwargs
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError
from weft.utils.tensorboard._arrays import to_numpy
from weft.utils.tensorboard._protos import (
    ListValue,
    Message,
    Summary,
    SummaryMetadata,
    Value,
    hparams_api,
    hparams_data,
    hparams_metadata,
)


def hparams(
    hparam_dict: Kwargs, metric_dict: Kwargs, hparam_domain_discrete: dict[str, list[object]] | None = None
) -> tuple[Message, Message, Message]:
    """Three records: the experiment's hyperparameters and metrics, the values of this run, and its success."""
    domains = hparam_domain_discrete or {}
    for name, entries in {
        "hparam_dict": hparam_dict,
        "metric_dict": metric_dict,
        "hparam_domain_discrete": domains,
    }.items():
        if not isinstance(entries, dict):
            raise ArgumentError(f"parameter: {name} should be a dictionary, nothing logged.")
    _check_domains(domains, hparam_dict)
    values = {name: _value(value) for name, value in hparam_dict.items() if value is not None}
    start = hparams_data.SessionStartInfo()
    for name, value in values.items():
        start.hparams[name].CopyFrom(value)
    experiment = hparams_api.Experiment(
        hparam_infos=[_info(name, value, domains.get(name)) for name, value in values.items()],
        metric_infos=[hparams_api.MetricInfo(name=hparams_api.MetricName(tag=tag)) for tag in metric_dict],
    )
    end = hparams_data.SessionEndInfo(status=hparams_api.STATUS_SUCCESS)
    return (
        _summary(hparams_metadata.EXPERIMENT_TAG, experiment=experiment),
        _summary(hparams_metadata.SESSION_START_INFO_TAG, session_start_info=start),
        _summary(hparams_metadata.SESSION_END_INFO_TAG, session_end_info=end),
    )


def _check_domains(domains: Mapping[str, Sequence[object]], values: Arg) -> None:
    for name, domain in domains.items():
        fits = name in values and isinstance(domain, list)
        if not fits or not all(isinstance(value, type(values[name])) for value in domain):
            raise ArgumentError(
                f"parameter: hparam_domain_discrete[{name}] should be a list of same type as hparam_dict[{name}]."
            )


def _value(value: object) -> Value:
    if isinstance(value, str):
        return Value(string_value=value)
    if isinstance(value, (int, float)):
        return Value(number_value=value)
    if isinstance(value, Tensor):
        return Value(number_value=to_numpy(value).reshape(-1)[0])
    raise ValueRangeError("value should be one of int, float, str, bool, or torch.Tensor")


def _info(name: str, value: Value, domain: Sequence[object] | None) -> Message:
    is_text = value.WhichOneof("kind") == "string_value"
    kind = hparams_api.DATA_TYPE_STRING if is_text else hparams_api.DATA_TYPE_FLOAT64
    discrete = None if domain is None else ListValue(values=[_value(one) for one in domain])
    return hparams_api.HParamInfo(name=name, type=kind, domain_discrete=discrete)


def _summary(tag: str, **content: Arg) -> Message:
    data = hparams_data.HParamsPluginData(version=hparams_metadata.PLUGIN_DATA_VERSION, **content)
    plugin = SummaryMetadata.PluginData(plugin_name=hparams_metadata.PLUGIN_NAME, content=data.SerializeToString())
    return Summary(value=[Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin))])
