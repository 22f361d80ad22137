"""Page fetcher: fetch the web pages of a job, in the worker process."""

from __future__ import annotations

import time
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from anyio import from_thread

from loom_core.errors import NetError
from loom_core.knowledge.ingest.workers.preparation import FetchedPage
from loom_core.net import GuardedClient, NetPolicy, redact_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.store import Job, JobItem
    from loom_core.net import HttpResponse

__all__ = ["PageFetcher", "client_for"]

_SECONDS = 1.0  # after which fetched pages are returned, so that progress is reported
_BYTES = 8 << 20
_ACCEPT = "text/html,application/xhtml+xml,application/pdf,text/markdown,text/plain;q=0.9,*/*;q=0.5"


class PageFetcher:
    """Fetches the web pages of jobs, one after the other.

    Args:
        max_bytes: a larger page is refused.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._job = 0
        self._client: GuardedClient | None = None

    def fill(self, job: Job, items: Sequence[JobItem]) -> list[JobItem]:
        """Fetch the pages of some items. Blocks for a moment; only for threads started by `to_thread`.

        Args:
            job: a job with `urls`; its `allow_net` names hosts allowed besides the public internet.
            items: its next items, of any kind.

        Returns:
            The first of the items, at least one, with the page or the reason why there is none as payload.
        """
        until = time.monotonic() + _SECONDS
        filled: list[JobItem] = []
        for item in items:
            if item.uri.startswith("file:"):
                filled.append(item)
                continue
            payload = from_thread.run(self._fetch, job, item.uri).payload()
            filled.append(replace(item, payload=payload, size=len(payload)))
            if time.monotonic() > until or sum(each.size for each in filled) > _BYTES:
                break
        return filled

    async def _fetch(self, job: Job, url: str) -> FetchedPage:
        if self._client is None or self._job != job.key:
            self._job, self._client = job.key, client_for(job.request["allow_net"], max_bytes=self._max_bytes)
        try:
            response = await self._client.request("GET", url, headers={"accept": _ACCEPT})
        except NetError as error:
            return FetchedPage(refusal=str(error))
        if response.status != HTTPStatus.OK:
            return FetchedPage(refusal=f"{redact_url(url)} was answered with {_format_status(response)}.")
        return FetchedPage(response.body, response.media_type, response.charset)


def client_for(rules: Sequence[str], *, max_bytes: int | None = None) -> GuardedClient:
    """Return a client that may also request what rules allow.

    Args:
        rules: hosts and networks, see `NetPolicy.allowing`.
        max_bytes: maximum size of a response, instead of the policy's.

    Raises:
        ConfigError: a rule is neither a host nor a network.
    """
    policy = NetPolicy.allowing(rules)
    return GuardedClient(policy if max_bytes is None else replace(policy, max_bytes=max_bytes))


def _format_status(response: HttpResponse) -> str:
    try:
        return f"{response.status} {HTTPStatus(response.status).phrase}"
    except ValueError:
        return str(response.status)
