"""The panel's HTTP routes, under ``/spillway/v1/``. They run on fastapi 0.94 with pydantic 1 as on the newest."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Depends, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from ..errors import BadInputError, SpillwayError, UnavailableError
from ..host_port import ImageRequest
from ..placement.profile import Profile
from ..session import Session
from ..timing.export import write_csv, write_json
from ..timing.log_rows import LogFilter
from ..words import language_of
from .assets import MEDIA_TYPES, asset_path
from .doctor import doctor_payload
from .origin import REFUSED, SAFE_METHODS, is_cross_origin
from .payloads import (
    error_payload,
    host_payload,
    last_job_payload,
    memory_payload,
    profiles_payload,
    progress_payload,
    record_payload,
    said_in,
    settings_payload,
)
from .state import RecoveryWatch

PREFIX = "/spillway/v1"
_MAX_PAGE = 500
_MAX_FILES = 500
_CHOICES_OVER = 500


class _RefusedError(SpillwayError):
    """A request that another site sent, or may have sent."""


class _Answer(JSONResponse):
    """ASCII only: a file name that is no Unicode has no UTF-8 form, yet must not cost the whole answer."""

    def __init__(self, content: Any, status_code: int = 200) -> None:
        self._content = content
        super().__init__(content, status_code=status_code)

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()

    def said_in(self, language: str) -> _Answer:
        """The same answer with its sentences in that language."""
        return _Answer(said_in(language, self._content), status_code=self.status_code)


def _status(error: SpillwayError) -> int:
    if isinstance(error, _RefusedError):
        return 403
    return 409 if isinstance(error, UnavailableError) else 400


class _SpillwayRoute(APIRoute):
    """Refuses changes that other sites ask for, and answers in the reader's language and errors in sentences, with no
    handler on the host's app."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                _refuse_foreign(request)
                return await inner(request)
            except SpillwayError as error:
                return _Answer(error_payload(error), status_code=_status(error))
            except RequestValidationError as error:
                fields = ", ".join(sorted({str(item["loc"][-1]) for item in error.errors()}))
                sentence = f"This cannot be understood: {fields}."
                return _Answer({"error": sentence, "detail": str(error)}, status_code=400)

        async def handler(request: Request) -> Response:
            response = await answer(request)
            asked = request.query_params.get("lang") or request.headers.get("accept-language")
            language = language_of(asked)
            return response.said_in(language) if isinstance(response, _Answer) and language != "en" else response

        return handler


def _refuse_foreign(request: Request) -> None:
    """A form on another site cannot send JSON without asking first, so JSON is required besides a same origin."""
    if request.method in SAFE_METHODS:
        return
    if is_cross_origin(dict(request.headers)):
        raise _RefusedError(REFUSED)
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise _RefusedError("A change is only accepted as JSON.", detail="Content-Type must be application/json")


async def _json_object(request: Request) -> dict[str, Any]:
    try:
        found = json.loads(await request.body() or b"{}")
    except ValueError as error:
        raise BadInputError("The request holds no valid JSON.", detail=str(error)) from error
    if not isinstance(found, dict):
        raise BadInputError("The request must be a JSON object.")
    return found


def _wanted(
    profile: str | None = None, model: str | None = None, width: int | None = None, height: int | None = None,
    job_id: str | None = None,
) -> LogFilter:
    return LogFilter(profile=profile or None, model=model or None, width=width, height=height, job_id=job_id or None)


# A default is made once; fastapi 0.94 knows no ``Annotated``.
_BODY = Depends(_json_object)
_WANTED = Depends(_wanted)
_FILES = Query(default=[])
_IDS = Query(default=[])
_LIMIT = Query(default=25, ge=1, le=_MAX_PAGE)
_OFFSET = Query(default=0, ge=0, le=2**31)


def build_router(session: Session) -> APIRouter:
    """Every route, over this session."""
    router = APIRouter(prefix=PREFIX, route_class=_SpillwayRoute)
    _add_memory(router, session)
    _add_settings(router, session)
    _add_jobs(router, session)
    _add_log(router, session)
    _add_assets(router)
    return router


def _add_memory(router: APIRouter, session: Session) -> None:
    watch = RecoveryWatch()

    @router.get("/host")
    def host() -> Response:
        return _Answer(host_payload(session.info()))

    @router.get("/doctor")
    def doctor() -> Response:
        return _Answer(doctor_payload(session))

    @router.get("/memory")
    def memory(since: float = 0.0) -> Response:
        recovering = watch.recovering(session.progress())
        return _Answer(memory_payload(session, since, recovering=recovering))


def _add_settings(router: APIRouter, session: Session) -> None:
    def apply(change: dict[str, Any]) -> dict[str, Any]:
        profile = Profile.parse(str(change.get("profile") or ""))
        return {"profile": profile.value, "switch_seconds": session.set_profile(profile)}

    @router.get("/profile")
    def profiles(width: int = 512, height: int = 512, steps: int = 20, batch: int = 1) -> Response:
        request = ImageRequest(width=width, height=height, steps=steps, batch_size=batch).validated()
        return _Answer(profiles_payload(session, request))

    @router.put("/profile")
    def set_profile(change: dict[str, Any] = _BODY) -> Response:
        return _Answer(apply(change))

    @router.put("/cap")
    def set_cap(change: dict[str, Any] = _BODY) -> Response:
        size = _number(change, "cap_bytes")
        cap = session.set_cap(None if size is None else int(size), _number(change, "cap_ram_percent"))
        return _Answer({"cap_bytes": cap})

    @router.get("/settings")
    def settings() -> Response:
        return _Answer(settings_payload(session))

    @router.put("/settings")
    def change_settings(change: dict[str, Any] = _BODY) -> Response:
        session.change_settings(**change)
        return _Answer(settings_payload(session))


def _number(change: dict[str, Any], name: str) -> float | None:
    value = change.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) > 2**62:
        raise BadInputError("The cap must be a number.", detail=f"{name} = {value!r}")
    return value


def _add_jobs(router: APIRouter, session: Session) -> None:
    @router.get("/jobs/current")
    def current() -> Response:
        return _Answer(progress_payload(session.progress()))

    @router.get("/jobs/last")
    def last() -> Response:
        return _Answer(last_job_payload(session.last_job()))

    @router.post("/jobs/stop")
    def stop(change: dict[str, Any] = _BODY) -> Response:
        return _Answer({"stopping": session.stop()})

    @router.post("/jobs/step-down")
    def step_down(change: dict[str, Any] = _BODY) -> Response:
        return _Answer({"stepping_down": session.step_down()})


def _add_log(router: APIRouter, session: Session) -> None:
    @router.get("/images")
    def images(
        wanted: LogFilter = _WANTED,
        files: list[str] = _FILES,
        ids: list[str] = _IDS,
        limit: int = _LIMIT,
        offset: int = _OFFSET,
    ) -> Response:
        if files:
            found = session.log.by_file_names(files[:_MAX_FILES])
            return _Answer({"files": {name: record_payload(record) for name, record in found.items()}})
        if ids:
            found = session.log.by_id_prefixes(ids[:_MAX_FILES])
            return _Answer({"ids": {prefix: record_payload(record) for prefix, record in found.items()}})
        records = session.log.records(wanted, limit=limit, offset=offset)
        return _Answer({
            "images": [record_payload(record) for record in records],
            "count": session.log.count(wanted),
            "limit": limit,
            "offset": offset,
            "notices": list(session.log.notices),
        })

    @router.get("/images/choices")
    def choices() -> Response:
        records = session.log.records(LogFilter(), limit=_CHOICES_OVER, offset=0)
        return _Answer({
            "profiles": sorted({record.profile_used for record in records}),
            "models": sorted({record.model for record in records}),
            "sizes": [list(size) for size in sorted({(record.width, record.height) for record in records})],
        })

    @router.post("/images/clear")
    def clear(change: dict[str, Any] = _BODY) -> Response:
        cleared = session.log.count(LogFilter())
        session.log.clear()
        return _Answer({"cleared": cleared})

    @router.get("/images.csv")
    def images_csv(wanted: LogFilter = _WANTED) -> Response:
        stream = io.StringIO(newline="")
        write_csv(session.log.stream(wanted), stream, byte_order_mark=True)
        return _download(stream.getvalue(), "text/csv; charset=utf-8", "spillway-images.csv")

    @router.get("/images.json")
    def images_json(wanted: LogFilter = _WANTED) -> Response:
        stream = io.StringIO()
        write_json(session.log.stream(wanted), stream)
        return _download(stream.getvalue(), "application/json", "spillway-images.json")


def _download(text: str, media_type: str, name: str) -> Response:
    return Response(text, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _add_assets(router: APIRouter) -> None:
    @router.get("/assets/{name}", include_in_schema=False)
    def asset(name: str) -> Response:
        path = asset_path(name)
        if path is None:
            return _Answer({"error": f"There is no file {name}.", "detail": None}, status_code=404)
        return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})
