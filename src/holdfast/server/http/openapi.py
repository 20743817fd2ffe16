"""Generates the OpenAPI document from the table of routes and their types."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, get_args, get_origin

import msgspec

from holdfast import limits
from holdfast.server.auth.permissions import Scope
from holdfast.server.http.problems import Problem
from holdfast.server.http.routing import Route

#: Of classes whose names without it belong to the domain, such as `JobResource`.
_SUFFIX = "Resource"
_REF = "#/components/schemas/{name}"
_PARAM = re.compile(r"\{(\w+)\}")
#: Statuses of every route, including the limits of a request; routes with a path parameter also have 404.
_ALWAYS = (400, 401, 403, 408, 414, 429, 431, 500, 503)
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "a request that is repeated with the same key takes effect once",
    "schema": {"type": "string", "maxLength": limits.REQUEST_ID_CHARS_MAX, "pattern": "^[ -~]*$"},
}
_LAST_EVENT = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "the position to continue after",
    "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
}
_HAVE_KEYS = {"/api/v1/jobs", "/api/v1/jobs/{id}/retry"}


def document(routes: Sequence[Route], version: str) -> bytes:
    """Returns the OpenAPI document of these routes, as JSON."""
    shown = [route for route in routes if not route.is_short_form]
    kinds = {kind: None for route in shown for kind in _kinds(route)}
    schemas, components = msgspec.json.schema_components(list(kinds), ref_template=_REF)
    schema_of = dict(zip(kinds, _public(schemas), strict=True))
    paths: dict[str, Any] = {}
    for route in shown:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Holdfast",
                "version": version or "0",
                "description": "A durable job queue. Errors are returned as application/problem+json.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "tags": [{"name": name} for name in dict.fromkeys(route.tag for route in shown)],
            "security": [{}, {"token": []}],
            "paths": paths,
            "components": {
                "schemas": {name.removesuffix(_SUFFIX): _public(schema) for name, schema in components.items()},
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _public(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """The schema with the component names of the API, which are those of the classes without their suffix."""
    if isinstance(schema, dict):
        names = {
            key: schema[key].removesuffix(_SUFFIX) for key in ("$ref", "title") if isinstance(schema.get(key), str)
        }
        return {key: _public(value) for key, value in {**schema, **names}.items()}
    return [_public(one) for one in schema] if isinstance(schema, list | tuple) else schema


def _kinds(route: Route) -> list[Any]:
    kinds: list[Any] = [Problem]
    kinds += [route.body, *route.bodies_by_name.values()] if route.body is not None else []
    for kind in route.answers.values():
        kinds += kind if isinstance(kind, tuple) else [] if kind is None else [kind]
    if route.query is not None:
        kinds += [field.type for field in msgspec.structs.fields(route.query)]
    return kinds


Schemas = Mapping[Any, Mapping[str, Any]]


def _operation(route: Route, schema_of: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _id(route),
        "summary": route.summary,
        "tags": [route.tag],
        "x-holdfast-scope": route.scope.value,
        "parameters": [*_path_parameters(route), *_query_parameters(route, schema_of), *_headers(route)],
        "responses": _responses(route, schema_of),
    }
    if not isinstance(route.scope, Scope):
        operation["security"] = []
    if route.body is not None:
        operation["requestBody"] = _body(route, schema_of)
    return operation


def _id(route: Route) -> str:
    words = [word for word in re.split(r"[^a-z]+", route.path.removeprefix("/api/v1/")) if word]
    return "_".join([route.method.lower(), *words])


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(route, name)}
        for name in _PARAM.findall(route.path)
    ]


def _path_schema(route: Route, name: str) -> dict[str, Any]:
    if name == "id" and route.tag == "jobs":
        return {"type": "string", "minLength": 1, "maxLength": limits.JOB_ID_CHARS_MAX}
    return {"type": "string", "pattern": f"^{limits.NAME_PATTERN}$"}


def _query_parameters(route: Route, schema_of: Schemas) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    parameters = []
    for field in msgspec.structs.fields(route.query):
        is_list = get_origin(_bare(field.type)) is list
        schema = dict(schema_of[field.type])
        if not is_list and field.default not in {msgspec.NODEFAULT, ""}:
            schema["default"] = field.default
        more = {"style": "form", "explode": True} if is_list else {}
        parameters.append({"name": field.name, "in": "query", "required": field.required, "schema": schema, **more})
    return parameters


def _bare(kind: Any) -> Any:  # noqa: ANN401 - a type
    return get_args(kind)[0] if hasattr(kind, "__metadata__") else kind


def _headers(route: Route) -> list[dict[str, Any]]:
    if route.path in _HAVE_KEYS and route.method == "POST":
        return [_KEY]
    return [_LAST_EVENT] if route.content == "text/event-stream" else []


def _body(route: Route, schema_of: Schemas) -> dict[str, Any]:
    kinds = [route.body, *route.bodies_by_name.values()]
    content: dict[str, Any] = {"schema": _one_of([schema_of[kind] for kind in kinds])}
    if route.examples:
        content["examples"] = {
            name.replace(" ", "-"): {"summary": name, "value": value} for name, value in route.examples.items()
        }
    return {"required": not route.is_body_optional, "content": {"application/json": content}}


def _one_of(schemas: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return schemas[0] if len(schemas) == 1 else {"oneOf": schemas}


def _responses(route: Route, schema_of: Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in sorted({*_ALWAYS, *route.problems, *([404] if "{" in route.path else [])}):
        content = {"application/problem+json": {"schema": schema_of[Problem]}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
        if status in {429, 503}:
            responses[str(status)]["headers"] = {"Retry-After": {"schema": {"type": "string"}}}
    for status, kind in route.answers.items():
        described: dict[str, Any] = {"description": route.summary}
        if kind is not None:
            kinds = kind if isinstance(kind, tuple) else (kind,)
            described["content"] = {route.content: {"schema": _any_of([schema_of[one] for one in kinds])}}
        elif status != HTTPStatus.NO_CONTENT:
            described["content"] = {route.content: {"schema": {"type": "string"}}}
        if str(status) in responses:
            described["content"] |= responses[str(status)]["content"]
        responses[str(status)] = described
    return responses


def _any_of(schemas: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
