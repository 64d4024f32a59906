"""Run one site of a federation: receive a message, have it handled, commit the result, reply."""

import json
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from feal import __version__
from feal.annotation import ANNOTATORS
from feal.data import PreparedSet, PreparedSite, open_prepared
from feal.data.verify import check_files
from feal.errors import FealError, ShareableError
from feal.federation import protocol as messages
from feal.federation.closed_form import read_frozen
from feal.federation.site.handlers import HandlerResult, MessageHandler
from feal.federation.site.projection import FrozenFeatures
from feal.federation.site.query import allowance
from feal.fileio import lock_file, wrap_os_error, write_text
from feal.metrics import find_metrics
from feal.models import check_model_task, check_weights_source, find_model
from feal.processes import retain_memory
from feal.rng import Address
from feal.rundir.layout import SiteDirectory
from feal.rundir.site_state import SiteState
from feal.rundir.site_store import RoundLabels, Store
from feal.selection import build_strategy
from feal.settings import Settings
from feal.tensors import resolve_device, use_threads


class Site:
    """Answer the four messages with one site's data; everything it knows is in its directory.

    A message that comes again returns the stored reply without work; an older one is refused. `problem` holds the
    last failure in full: the reply says only that there was one, since it leaves the site.
    """

    def __init__(self, name: str, *, folder: Path, data: PreparedSet) -> None:
        retain_memory()
        self.name = name
        self.folder = folder
        self.problem = ""
        self._directory = SiteDirectory(folder)
        self._data = data
        self._opened_store: Store | None = None
        self._opened: tuple[str, Settings, MessageHandler] | None = None

    def close(self) -> None:
        """Close the site's files."""
        if self._opened_store is not None:
            self._opened_store.close()
            self._opened_store = self._opened = None

    def handle(self, data: bytes) -> bytes:
        """Answer an encoded request with an encoded reply; any failure at the site is a failed reply."""
        request = messages.decode_request(data)
        self.problem = ""
        try:
            # A worker process of a coordinator that was killed may still be handling the same message.
            with lock_file(self._directory.lock):
                self._directory.problem.unlink(missing_ok=True)
                return messages.encode(self._answer(request))
        except FealError as error:
            reply = self._fail(request, str(error), is_shareable=isinstance(error, ShareableError))
        except OSError as error:
            reply = self._fail(request, str(wrap_os_error(error)))
        except Exception as error:
            what = (
                f"Site {self.name} failed with {type(error).__name__} ({error}): its problem.txt has the details."
            )
            reply = self._fail(request, what, trace=traceback.format_exc())
        return messages.encode(reply)

    @property
    def _store(self) -> Store:
        if self._opened_store is None:
            self._opened_store = Store(self._directory.database)
        return self._opened_store

    def _answer(self, request: messages.Request) -> messages.Reply:
        if request.protocol != messages.PROTOCOL:
            raise ShareableError(
                f"Site {self.name} uses protocol {messages.PROTOCOL}, the coordinator {request.protocol}: "
                "install the same version on both."
            )
        if isinstance(request, messages.Join):
            return self._join(request)
        settings, handler = self._open()
        state = self._store.state()
        if request.key == state.key:
            return self._read_reply(state, request)
        if _position(request) < state.position and not isinstance(request, messages.Labels):
            raise FealError(
                f"Site {self.name} is already past that message: resume the run from its own directory."
            )
        with _reproducible(request, site=self.name, seed=settings.seed, threads=settings.threads):
            return self._commit(request, handler.handle(request, state), share_counts=settings.share_class_counts)

    def _open(self) -> tuple[Settings, MessageHandler]:
        """Return the settings of the last join and what handles messages under them."""
        content = self._store.settings()
        if self._opened is None or self._opened[0] != content:
            settings = Settings.model_validate_json(content)
            handler = MessageHandler(self._store, data=self._data, settings=settings)
            self._opened = (content, settings, handler)
        return self._opened[1:]

    def _commit(self, request: messages.Request, result: HandlerResult, *, share_counts: bool) -> messages.Reply:
        """Commit a message's work in one transaction; the files it refers to are durable already."""
        reply, state = result.reply, result.state
        with self._store.transaction():
            self._store.add_queries(result.queries)
            self._store.add_answers(result.answers)
            if isinstance(reply, messages.LabelsReply):
                reply = reply.model_copy(update=self._count_labels(request.round + 1, share_counts=share_counts))
            # A poll for labels has no place in the order of messages: it is answered whenever it comes.
            if not isinstance(request, messages.Labels):
                state = replace(
                    state,
                    key=request.key,
                    position=_position(request),
                    reply=json.dumps(reply.model_dump(exclude={"weights"}), allow_nan=False),
                    sends_local=reply.weights is not None and state.sums is None,
                )
                self._store.save_state(state)
        if not isinstance(request, messages.Train):  # the next one writes over the file that this one left
            self._store.models.remove_unused(state)
        return reply

    def _count_labels(self, round_: int, *, share_counts: bool) -> dict[str, object]:
        """Return the fields of a reply that say how labelling for a round stands."""
        rounds = self._store.labels_by_round()
        now = rounds.get(round_)
        return {
            **_count_answers(rounds),
            "class_counts": self._store.class_counts(len(self._data.classes)).tolist() if share_counts else None,
            "asked": now.asked if now else 0,
            "pending": now.pending if now else 0,
        }

    def _join(self, request: messages.Join) -> messages.JoinReply:
        settings = self._read_settings(request)
        site = self._data.site(self.name, validation=settings.validation, redraw=settings.redraw)
        check_files(self._data, self.name, cached=True)
        if self._store.data_digest() is None:
            self._check_data(site, settings)
        encoder, features = self._find_encoder(site, settings)
        self._store.admit(run=request.run, data=self._data.digest, settings=json.dumps(settings.dump()))
        self._store.models.remove_unused(self._store.state())
        return messages.JoinReply(
            key=request.key,
            site=self.name,
            version=__version__,
            task=self._data.task,
            classes=list(self._data.classes),
            channels=self._data.channels,
            height=self._data.height,
            width=self._data.width,
            dtype=self._data.manifest.dtype,
            fitting=self._data.manifest.fitting,
            encoder=encoder,
            features=features,
            pool=len(site.ids("train")),
            test=len(site.ids("test")),
            given=int(site.is_initial("train").sum()),
            **_count_answers(self._store.labels_by_round()),
        )

    def _find_encoder(self, site: PreparedSite, settings: Settings) -> tuple[str, int]:
        """Return the digest of a frozen encoder and the number of its features; empty and 0 for other models."""
        params = read_frozen(settings.model)
        if params is None:
            return "", 0
        device = resolve_device(settings.device)
        frozen = FrozenFeatures(self._data, site, params, threads=settings.threads, device=device)
        return frozen.digest, frozen.count()

    def _read_settings(self, request: messages.Join) -> Settings:
        if request.version != __version__:
            raise ShareableError(
                f"Site {self.name} runs version {__version__}, the coordinator {request.version}: "
                "install the same version on both."
            )
        try:
            settings = Settings.model_validate(request.configuration)
        except ValidationError as error:
            raise ShareableError(
                f"Site {self.name} was sent a configuration it cannot read: {error.title}."
            ) from error
        if settings.identity() != request.run:
            raise ShareableError(
                f"Site {self.name} was sent a configuration that is not that of run {request.run}."
            )
        return settings

    def _check_data(self, site: PreparedSite, settings: Settings) -> None:
        """Check, before any work is done, that the site's data and machine are fit for the run.

        Raises:
            FealError: no training sample, a budget of no label, labels that the annotator finds unusable, or a
                strategy or weights that are not on this machine.
        """
        build_strategy(settings.strategy)
        check_model_task(settings.model.name, self._data.task)
        find_metrics(self._data.task, settings.metrics, settings.metric)
        if settings.training.trainable != "all" and not find_model(settings.model.name).has_encoder:
            check_weights_source(settings.model.name, settings.weights)
        samples = len(site.ids("train"))
        if samples == 0:
            raise FealError(f"Site {self.name} has no training sample: add some, or leave the site out.")
        fraction = settings.max_labelled_fraction
        if allowance(settings.budget, max_fraction=fraction, samples=samples, asked=0) == 0:
            raise FealError(
                f"budget={settings.budget} gives 0 labels at site {self.name} ({samples} samples): raise it."
            )
        annotator = ANNOTATORS.get(settings.annotator.name)(site, folder=self.folder)
        annotator.check(allow_single_class=settings.allow_single_class)

    def _read_reply(self, state: SiteState, request: messages.Request) -> messages.Reply:
        """Return the stored reply to the last message."""
        fields = json.loads(state.reply)
        sent = state.sums or (state.local if state.sends_local else None)
        if sent is not None:
            fields["weights"] = self._store.models.read_weights(sent)
        return messages.REPLIES[request.kind](**fields)

    def _fail(
        self, request: messages.Request, problem: str, *, trace: str = "", is_shareable: bool = False
    ) -> messages.Reply:
        """Record a failure at the site, and return a reply that says no more than may leave it."""
        self.problem = problem
        reason = f"Site {self.name} could not answer '{request.kind}': its own problem.txt says why."
        if is_shareable:
            reason = problem
        try:
            write_text(self._directory.problem, f"{problem}\n{trace}")
        except FealError:
            reason = f"Site {self.name} could not answer '{request.kind}', nor write problem.txt."
        return messages.REPLIES[request.kind](key=request.key, site=self.name, status="failed", reason=reason)


def handle_request(name: str, request: bytes, *, data: Path, folder: Path) -> bytes:
    """Open a site from its directory, have it handle one request, and return the encoded reply."""
    site = Site(name, folder=folder / name, data=open_prepared(data))
    try:
        return site.handle(request)
    finally:
        site.close()


def _count_answers(rounds: Mapping[int, RoundLabels]) -> dict[str, int]:
    return {
        "labelled": sum(counts.labelled for counts in rounds.values()),
        "declined": sum(counts.declined for counts in rounds.values()),
    }


def _position(request: messages.Request) -> tuple[int, int, int]:
    return request.round, int(not isinstance(request, messages.Train)), request.step


@contextmanager
def _reproducible(request: messages.Request, *, site: str, seed: int, threads: int) -> Iterator[None]:
    """Set the same threads and random state for a message, whatever ran in this process before."""
    purpose = f"message {request.kind}"
    Address(seed=seed, purpose=purpose, site=site, round=request.round, step=request.step).seed_torch()
    with use_threads(threads):
        yield
