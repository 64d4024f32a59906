"""A site's duties: train, close a round, collect labels. Nothing here is committed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from feal.annotation import ANNOTATORS, Annotator, Answer, Draw, Query, as_label
from feal.data import PreparedSet, open_truth
from feal.federation import messages
from feal.federation.evaluation import Samples, evaluate
from feal.federation.inputs import Images, Inputs, trunk_outputs
from feal.federation.labelled import class_counts
from feal.federation.learning import Learner
from feal.federation.networks import SiteNetworks
from feal.federation.pool import Pool
from feal.federation.querying import Selected, allowance, select, select_first
from feal.federation.records import uncertainty_maps, write_choice
from feal.federation.statistics import Statistics
from feal.federation.store import Closed, Memory, Store, TensorFile
from feal.files import write_tensors
from feal.models import Network, device_named
from feal.randomness import Address
from feal.selection import Choice, Context, Role
from feal.settings import Settings
from feal.tensors import tensors_digest


@dataclass(frozen=True, kw_only=True)
class Done:
    """A message's work, to be committed as one."""

    reply: messages.Reply
    queries: Sequence[Query] = ()
    answers: Sequence[Answer] = ()
    local: TensorFile | None = None
    optimizer: TensorFile | None = None
    initial: TensorFile | None = None
    closed: Closed | None = None


class Duties:
    """One message's work at one site, with its data, labels and models at hand."""

    def __init__(
        self,
        name: str,
        *,
        folder: Path,
        data: PreparedSet,
        store: Store,
        settings: Settings,
        memory: Memory,
    ) -> None:
        self._name = name
        self._folder = folder
        self._set = data
        self._site = data.site(name, validation=settings.validation)
        self._store = store
        self._settings = settings
        self._memory = memory
        self._device = device_named(settings.device)
        self._networks = SiteNetworks(data, folder=folder, settings=settings, memory=memory, device=self._device)
        self._inputs: Inputs = Images(self._site, settings.transforms, device=self._device)
        self._seconds: dict[str, float] = {}

    def do(self, request: messages.Request) -> Done:
        """Do what a request asks."""
        if request.weights is not None and self._settings.training.trainable != "all":
            with self._timed("cache"):
                self._inputs = trunk_outputs(self._set, self._site, self._settings, device=self._device)
        if isinstance(request, messages.Train):
            return self._train(request)
        if isinstance(request, messages.CloseRound):
            return self._close_round(request)
        assert isinstance(request, messages.Labels)
        return self._collect(request)

    def _train(self, request: messages.Train) -> Done:
        assert request.weights is not None
        network = self._networks.build("global", request.weights)
        context = self._context(request.class_counts)
        statistics = self._evaluate(network, context) if request.evaluate else None
        learner = self._learner(context)
        reply = messages.TrainReply(
            key=request.key,
            site=self._name,
            labelled=len(learner),
            class_counts=self._shared(context.site_counts),
            statistics=statistics,
            seconds=self._seconds,
        )
        if not len(learner):
            return Done(reply=reply)
        with self._timed("train"):
            trained = learner.learn(
                network,
                step=request.step,
                epochs=self._settings.training.local_epochs,
                generator=self._address("order", request).generator(),
                transforms=self._address("transforms", request).generator(),
                moments=self._networks.moments(request.round),
            )
        return Done(
            reply=reply.model_copy(
                update={"weights": trained.weights, "loss": trained.loss, "seconds": self._seconds}
            ),
            local=self._networks.write(f"local-{request.key}", trained.weights),
            optimizer=self._networks.write(f"optimizer-{request.key}", trained.moments),
        )

    def _close_round(self, request: messages.CloseRound) -> Done:
        context = self._context(request.class_counts)
        if request.round == 0:
            return self._ask_first(request, context)
        assert request.weights is not None
        networks = self._networks.cast(
            request.round,
            request.weights,
            learner=partial(self._learner, context),
            address=self._address("", request),
        )
        samples = Samples()
        statistics = self._evaluate(networks["global"], context, samples=samples)
        if statistics is not None and self._settings.diagnostics:
            self._keep_evaluation(request.round, samples)
        choice = self._select(request, context, networks)
        reply = messages.CloseRoundReply(
            key=request.key,
            site=self._name,
            statistics=statistics,
            local_model="own" if self._memory.local is not None else "global",
            previous_model=self._networks.previous(request.round) if request.ask else "none",
            rejected=choice.counts.get("rejected", 0),
            filled=choice.counts.get("filled", 0),
        )
        draw = partial(self._draw, networks["global"]) if context.task == "segmentation" else None
        closed = self._networks.closed(request.round, request.weights, key=request.key)
        return replace(self._asked(request, reply, choice, draw=draw), closed=closed)

    def _ask_first(self, request: messages.CloseRound, context: Context) -> Done:
        """The labels that a run begins with: uniform, or those that came with the data."""
        train_ids = self._site.ids("train").tolist()
        reply = messages.CloseRoundReply(key=request.key, site=self._name)
        initial = None
        if request.weights is not None:
            initial = self._networks.write(f"initial-{request.key}", request.weights)
        if self._settings.initial == "given":
            given = self._site.ids("train")[self._site.given("train")].tolist()
            choice = Choice(ids=given, parts={"score": torch.zeros(len(given), dtype=torch.float64)})
            labels = open_truth(self._site).of(given).numpy()
            answers = [
                Answer(sample=sample, label=as_label(label), by="given")
                for sample, label in zip(given, labels, strict=True)
            ]
            self._record(request, choice)
            return Done(reply=reply, queries=self._queries(choice, request), answers=answers, initial=initial)
        budget = allowance(self._settings, samples=len(train_ids), asked=0)
        choice = select_first(train_ids, context, budget=budget, address=self._address("first labels", request))
        return replace(self._asked(request, reply, choice, draw=None), initial=initial)

    def _asked(
        self, request: messages.CloseRound, reply: messages.CloseRoundReply, choice: Choice, *, draw: Draw | None
    ) -> Done:
        """Put the choice to the annotator and take in the answers that are there, to any question."""
        queries = self._queries(choice, request)
        if request.ask:
            self._record(request, choice)
            with self._timed("ask"):
                self._annotator().ask(queries, draw=draw)
        answers, refused = self._gather(queries)
        reply = reply.model_copy(update={"refused": refused, "seconds": self._seconds})
        return Done(reply=reply, queries=queries, answers=answers)

    def _record(self, request: messages.CloseRound, choice: Choice) -> None:
        write_choice(self._folder / "selections" / f"round-{request.round + 1:03}.csv", choice)

    def _collect(self, request: messages.Labels) -> Done:
        answers, refused = self._gather([])
        return Done(reply=messages.LabelsReply(key=request.key, site=self._name, refused=refused), answers=answers)

    def _gather(self, queries: Sequence[Query]) -> tuple[list[Answer], int]:
        """Answers that say something new, and the number of those that are refused."""
        pending = [*self._store.pending(), *(query.sample for query in queries)]
        gathered = self._annotator().poll(pending=pending, answered=self._store.answered())
        return self._store.changed(gathered.answers), len(gathered.refusals)

    def counted(self, request: messages.Request, reply: messages.Reply) -> messages.Reply:
        """The reply with how labelling stands, once its queries and answers are stored."""
        if not isinstance(reply, messages.CloseRoundReply | messages.LabelsReply):
            return reply
        asked, pending = self._store.question(request.round + 1)
        counts = class_counts(self._store, self._set.task, len(self._set.classes))
        return reply.model_copy(
            update={
                "labelled": len(self._store.labelled()),
                "class_counts": self._shared(counts),
                "asked": asked,
                "pending": pending,
                "declined": self._store.declined(),
            }
        )

    def _draw(self, network: Network, ids: Sequence[str]) -> NDArray[np.uint8]:
        """The model's own masks [n, height, width], for people to correct."""
        with torch.no_grad():
            masks: NDArray[np.uint8] = network.eval()(self._images(ids)).argmax(1).to(torch.uint8).cpu().numpy()
        return masks

    def _select(self, request: messages.CloseRound, context: Context, networks: Mapping[Role, Network]) -> Choice:
        train_ids = self._site.ids("train").tolist()
        asked = self._store.asked()
        pool = Pool(
            ids=[sample for sample in train_ids if sample not in asked],
            labelled=self._store.labelled(),
            read=self._images,
            networks=networks,
            scratch=self._folder / "scratch",
            device=self._device,
        )
        budget = allowance(self._settings, samples=len(train_ids), asked=len(asked)) if request.ask else 0
        address = self._address("select", request)
        with self._timed("select"):
            selected = select(pool, context, self._settings, budget=budget, address=address)
        if self._settings.diagnostics:
            with self._timed("diagnose"):
                self._keep(request.round, selected, pool, context)
        return selected.choice

    def _keep(self, round_: int, selected: Selected, pool: Pool, context: Context) -> None:
        """What later analysis needs of a round, at the site alone."""
        kept = {"rows": torch.as_tensor(self._site.rows(selected.candidates)), **selected.kept}
        if context.task == "segmentation":
            batch_size = self._settings.selection.batch_size
            kept |= uncertainty_maps(selected.choice.ids, pool, context, batch_size=batch_size)
        write_tensors(self._folder / "diagnostics" / f"round-{round_:03}.safetensors", kept)

    def _keep_evaluation(self, round_: int, samples: Samples) -> None:
        """What the global model said of each test sample, at the site alone."""
        kept = {"rows": torch.as_tensor(self._site.rows(self._site.ids("test"))), **samples.columns()}
        write_tensors(self._folder / "diagnostics" / f"evaluation-{round_:03}.safetensors", kept)

    def _queries(self, choice: Choice, request: messages.CloseRound) -> list[Query]:
        scores = choice.parts["score"].tolist() if choice.ids else []
        chosen_by = request.weights if request.round else None
        model = tensors_digest(chosen_by) if chosen_by is not None else ""
        return [
            Query(sample=sample, round=request.round + 1, rank=rank, score=score, model=model)
            for rank, (sample, score) in enumerate(zip(choice.ids, scores, strict=True), start=1)
        ]

    def _evaluate(
        self, network: Network, context: Context, *, samples: Samples | None = None
    ) -> Statistics | None:
        ids = self._site.ids("test").tolist()
        if not ids:
            return None
        with self._timed("evaluate"):
            return evaluate(
                network,
                ids,
                read=self._images,
                truth=open_truth(self._site).of,
                context=context,
                batch_size=self._settings.selection.batch_size,
                device=self._device,
                regions=self._set.regions,
                samples=samples,
            )

    def _images(self, ids: Sequence[str]) -> torch.Tensor:
        return self._inputs.seen(self._site.rows(ids))

    def _annotator(self) -> Annotator:
        return ANNOTATORS.get(self._settings.annotator)(self._site, folder=self._folder)

    def _learner(self, context: Context) -> Learner:
        return Learner(
            self._site,
            inputs=self._inputs,
            store=self._store,
            settings=self._settings,
            context=context,
            device=self._device,
        )

    def _context(self, total: list[int] | None) -> Context:
        counts = class_counts(self._store, self._set.task, len(self._set.classes))
        assert self._settings.loss is not None
        return Context(
            task=self._set.task,
            classes=len(self._set.classes),
            site_counts=counts,
            # The sum may be older than the site's own labels, and a class that is trained on has a count.
            total_counts=counts if total is None else torch.maximum(counts, torch.tensor(total).double()),
            selection=self._settings.selection,
            evidence=self._settings.evidence,
            loss=self._settings.loss,
            counts=self._settings.counts,
            query_model=self._settings.query_model,
        )

    def _shared(self, counts: torch.Tensor) -> list[int] | None:
        return [int(count) for count in counts.tolist()] if self._settings.share_counts else None

    def _address(self, purpose: str, request: messages.Request) -> Address:
        return Address(
            seed=self._settings.seed,
            purpose=purpose,
            site=self._name,
            round=request.round,
            step=request.step,
        )

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + time.perf_counter() - start
