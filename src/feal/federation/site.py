"""What one hospital runs: it answers messages, and its truth is on its disk."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from feal.data import PreparedSet
from feal.data.stamps import check_once
from feal.errors import FealError, RefusalError
from feal.federation import messages
from feal.federation.admission import check_admission
from feal.federation.duties import Done, Duties
from feal.federation.store import Memory, Store
from feal.files import from_system, in_turn, read_tensors, write_text
from feal.models import threads
from feal.randomness import Address
from feal.settings import Settings
from feal.version import VERSION


class Site:
    """Answers the four messages for one site's data, keeping everything it knows in `folder`.

    The same message again returns the stored reply without work; an older one is refused. `problem` holds the
    last failure in full: the reply carries no more than that there was one, since it leaves the site.
    """

    def __init__(self, name: str, *, folder: Path, data: PreparedSet) -> None:
        self.name = name
        self.folder = folder
        self.problem = ""
        self._data = data
        self._opened: Store | None = None

    def close(self) -> None:
        """Let go of the site's files."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def handle(self, data: bytes) -> bytes:
        """Answer an encoded request with an encoded reply; whatever goes wrong at the site is a failed reply."""
        request = messages.decode_request(data)
        self.problem = ""
        try:
            # A worker of a coordinator that was killed may still be at the same message.
            with in_turn(self.folder / ".lock"):
                (self.folder / "problem.txt").unlink(missing_ok=True)
                reply = self._answer(request)
        except FealError as error:
            reply = self._failure(request, str(error), told=isinstance(error, RefusalError))
        except OSError as error:
            reply = self._failure(request, str(from_system(error)))
        except Exception as error:
            what = f"Site {self.name} failed with {type(error).__name__} ({error}): its problem.txt says where."
            reply = self._failure(request, what, trace=traceback.format_exc())
        return messages.encode(reply)

    @property
    def _store(self) -> Store:
        if self._opened is None:
            self._opened = Store(self.folder / "site.sqlite")
        return self._opened

    def _answer(self, request: messages.Request) -> messages.Reply:
        if request.protocol != messages.PROTOCOL:
            raise RefusalError(
                f"Site {self.name} speaks protocol {messages.PROTOCOL}, the coordinator {request.protocol}: "
                "install the same version on both."
            )
        if isinstance(request, messages.Join):
            return self._join(request)
        settings = Settings.model_validate(json.loads(self._store.settings()))
        memory = self._store.memory()
        if request.key == memory.key:
            return self._stored_reply(memory, request)
        position = _position(request)
        if position < memory.position and not isinstance(request, messages.Labels):
            raise FealError(f"Site {self.name} is past that message already: resume the run from its own folder.")
        duties = Duties(
            self.name,
            folder=self.folder,
            data=self._data,
            store=self._store,
            settings=settings,
            memory=memory,
        )
        with _conditions(settings, request, self.name):
            done = duties.do(request)
            return self._commit(request, position, memory, duties, done)

    def _join(self, request: messages.Join) -> messages.JoinReply:
        if request.version != VERSION:
            raise RefusalError(
                f"Site {self.name} runs version {VERSION}, the coordinator {request.version}: "
                "install the same version on both."
            )
        try:
            settings = Settings.model_validate(request.configuration)
        except ValidationError as error:
            raise RefusalError(
                f"Site {self.name} was sent a configuration it cannot read: {error.title}."
            ) from error
        if settings.identity() != request.run:
            raise RefusalError(f"Site {self.name} was sent a configuration that is not that of run {request.run}.")
        site = self._data.site(self.name, validation=settings.validation)
        check_once(self._data, self.name)
        if not self._store.admitted():
            check_admission(site, settings, folder=self.folder)
        self._store.admit(run=request.run, data=self._data.digest, settings=json.dumps(settings.dump()))
        self._sweep()
        return messages.JoinReply(
            key=request.key,
            site=self.name,
            version=VERSION,
            task=self._data.task,
            classes=list(self._data.classes),
            channels=self._data.channels,
            height=self._data.height,
            width=self._data.width,
            dtype=self._data.manifest.dtype,
            fitting=self._data.manifest.fitting,
            pool=len(site.ids("train")),
            test=len(site.ids("test")),
            given=int(site.given("train").sum()),
            labelled=len(self._store.labelled()),
            declined=self._store.declined(),
        )

    def _commit(
        self,
        request: messages.Request,
        position: tuple[int, int, int],
        memory: Memory,
        duties: Duties,
        done: Done,
    ) -> messages.Reply:
        """Make a message's work last: files are written already, this one transaction makes them count."""
        if done.local is not None:
            memory = replace(memory, local=done.local, optimizer=done.optimizer, optimizer_round=request.round)
        if done.initial is not None:
            memory = replace(memory, initial=done.initial)
        if done.closed is not None:
            before = memory.before(request.round)
            memory = replace(memory, closed=(before, done.closed) if before else (done.closed,))
        with self._store.transaction():
            self._store.add_queries(done.queries)
            self._store.add_answers(done.answers)
            reply = duties.counted(request, done.reply)
            # A question for labels has no place in the order of messages: it is looked into whenever it is put.
            if not isinstance(request, messages.Labels):
                memory = replace(
                    memory,
                    key=request.key,
                    position=position,
                    reply=json.dumps(reply.model_dump(exclude={"weights"}), allow_nan=False),
                    sends_local=reply.weights is not None,
                )
                self._store.remember(memory)
        self._sweep()
        return reply

    def _stored_reply(self, memory: Memory, request: messages.Request) -> messages.Reply:
        fields = json.loads(memory.reply)
        if memory.sends_local:
            assert memory.local is not None
            fields["weights"] = read_tensors(self.folder / memory.local.name, sha256=memory.local.sha256)
        return messages.REPLIES[request.kind](**fields)

    def _failure(
        self, request: messages.Request, problem: str, *, trace: str = "", told: bool = False
    ) -> messages.Reply:
        self.problem = problem
        reason = f"Site {self.name} could not answer '{request.kind}': its own problem.txt says why."
        if told:
            reason = problem
        try:
            write_text(self.folder / "problem.txt", f"{problem}\n{trace}")
        except FealError:
            reason = f"Site {self.name} could not answer '{request.kind}', and could not write down why."
        return messages.REPLIES[request.kind](key=request.key, site=self.name, status="failed", reason=reason)

    def _sweep(self) -> None:
        """Delete models that a later commit replaced, and what a kill left half-done."""
        memory = self._store.memory()
        if not memory.key:
            return  # a database that knows nothing may have been put in the place of one that did
        needed = memory.files()
        for path in (self.folder / "models").glob("*"):
            if str(path.relative_to(self.folder)) not in needed:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.folder / "scratch", ignore_errors=True)


def _position(request: messages.Request) -> tuple[int, int, int]:
    return request.round, int(not isinstance(request, messages.Train)), request.step


@contextmanager
def _conditions(settings: Settings, request: messages.Request, site: str) -> Iterator[None]:
    """The same threads and the same random state for a message, whatever ran in this process before."""
    purpose = f"message {request.kind}"
    Address(seed=settings.seed, purpose=purpose, site=site, round=request.round, step=request.step).seed_torch()
    with threads(settings.threads):
        yield
