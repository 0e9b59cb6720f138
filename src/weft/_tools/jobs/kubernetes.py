"""Manifests for Kubernetes: a job with an index for each node, and what its nodes need to find and trust each other."""

from __future__ import annotations

import json
import math
import secrets
from importlib import import_module

from weft._base.types import Arg, Json
from weft._tools.jobs.manifest import Job
from weft.errors import ValueRangeError

_CONNECT_SECONDS = 600  # a node may have to be provisioned, and an image to be pulled
_FAREWELL_SECONDS = 30  # for the launcher, after its workers have ended or been killed
_UID_LABEL = "batch.kubernetes.io/controller-uid"


def kubernetes(job: Job) -> str:
    """YAML of a Secret, a headless Service, and an indexed Job; pod 0 serves a c10d rendezvous.

    Without PyYAML it is JSON, which is YAML as well.
    """
    if not job.image:
        raise ValueRangeError(
            "--print-manifest kubernetes needs the image that holds weft and the program: pass --container-image NAME"
        )
    parts = [_secret(job), _service(job), _job(job)]
    try:
        yaml = import_module("yaml")
    except ModuleNotFoundError:
        return "".join(f"---\n{json.dumps(part, indent=2, ensure_ascii=False)}\n" for part in parts)
    dumper = type("_Dumper", (yaml.SafeDumper,), {})
    dumper.add_representer(str, _text)
    dumper.add_representer(dict, _mapping)
    return yaml.dump_all(parts, Dumper=dumper, sort_keys=False, width=math.inf)


def _secret(job: Job) -> dict[str, Json]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": job.name},
        "stringData": {"WEFT_JOB_KEY": secrets.token_hex(32)},
    }


def _service(job: Job) -> dict[str, Json]:
    """Gives pods their host names, even before they are ready, since they become ready only together."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job.name},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": job.name},
            "ports": [{"name": "rendezvous", "port": job.port}],
        },
    }


def _job(job: Job) -> dict[str, Json]:
    logs: dict[str, Json] = {"volumes": [{"name": "logs", "emptyDir": {}}]} if job.log_dir else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job.name},
        "spec": {
            "completionMode": "Indexed",
            "completions": job.max_nodes,
            "parallelism": job.max_nodes,
            "backoffLimit": job.max_restarts,
            # evicted pods are replaced and join the others; they do not count as failures
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "Ignore",
                        "onPodConditions": [
                            {"type": "DisruptionTarget", "status": "True"},
                        ],
                    }
                ]
            },
            "template": {
                "spec": {
                    "subdomain": job.name,
                    "restartPolicy": "Never",
                    **logs,
                    "containers": [_container(job)],
                    "terminationGracePeriodSeconds": job.shutdown_timeout + _FAREWELL_SECONDS,
                }
            },
        },
    }


def _container(job: Job) -> dict[str, Json]:
    own = [
        {"name": "WEFT_JOB_KEY", "valueFrom": {"secretKeyRef": {"name": job.name, "key": "WEFT_JOB_KEY"}}},
        {"name": "JOB_UID", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{_UID_LABEL}']"}}},
    ]
    return {
        "name": "node",
        "image": job.image,
        "command": ["/bin/sh", "-c", _script(job).replace("$(", "$$(")],  # Kubernetes would expand $(
        "env": [*own, *({"name": name, "value": value.replace("$(", "$$(")} for name, value in job.env.items())],
        "ports": [{"name": "rendezvous", "containerPort": job.port}],
        **({"resources": {"requests": {"cpu": str(job.cpus)}}} if job.cpus else {}),
        **({"volumeMounts": [{"name": "logs", "mountPath": job.log_dir}]} if job.log_dir else {}),
    }


def _script(job: Job) -> str:
    command = job.command(
        "exec weft run",
        endpoint=f"{job.name}-0.{job.name}:{job.port}",
        run_id='"$JOB_UID"',
        conf=f'"is_host=$is_host,connect_timeout={_CONNECT_SECONDS}"' if job.serves else "",
    )
    return ('[ "$JOB_COMPLETION_INDEX" = 0 ] && is_host=1 || is_host=0\n' if job.serves else "") + command


def _text(dumper: Arg, text: str) -> Arg:
    """A block for several lines, else quoted even where PyYAML would not: kubectl reads `1e3` as a number."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else '"')


def _mapping(dumper: Arg, mapping: dict[str, Json]) -> Arg:
    node = dumper.represent_dict(mapping)
    for key, _ in node.value:
        key.style = None  # keys are plain words
    return node
