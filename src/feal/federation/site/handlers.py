"""Do the work of messages at a site: train, close a round, collect labels. Nothing here is committed."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from feal.annotation import ANNOTATORS, Answer, PredictMasks, Query, to_label
from feal.data import PreparedSet, open_labels
from feal.evidential import build_loss
from feal.federation import protocol as messages
from feal.federation.closed_form import is_closed_form, read_frozen, split_projection
from feal.federation.site.evaluation import evaluate
from feal.federation.site.feature_cache import CachedFeatures, TrunkSpec, open_features
from feal.federation.site.head_sums import compute_head_sums, fit_own_head
from feal.federation.site.projection import FrozenFeatures
from feal.federation.site.query import (
    LazyModels,
    Pool,
    allowance,
    compute_maps,
    make_models,
    make_queries,
    select_first,
    select_from_pool,
)
from feal.federation.site.training import Images, Inputs, LabelledSamples, Trainer, build_network
from feal.fileio import write_tensors
from feal.metrics import Statistics, find_metrics
from feal.models import Network, fold_batch_norms
from feal.rng import Address
from feal.rundir.artifacts import write_selection
from feal.rundir.site_state import RoundModels, SiteState
from feal.rundir.site_store import Store
from feal.selection import PREVIOUS_ROLES, Selection, SelectionContext, build_strategy
from feal.settings import Settings
from feal.tensors import Tensors, hash_tensors, resolve_batch_size, resolve_device


@dataclass(frozen=True, kw_only=True)
class HandlerResult:
    """The work of one message, to be committed as a whole."""

    reply: messages.Reply
    state: SiteState
    queries: Sequence[Query] = ()
    answers: Sequence[Answer] = ()


class MessageHandler:
    """Handle the messages of one run at one site."""

    def __init__(self, store: Store, *, data: PreparedSet, settings: Settings) -> None:
        self._store = store
        self._directory = store.directory
        self._data = data
        self._settings = settings
        self._device = resolve_device(settings.device)
        # A head takes a few numbers in place of an image.
        height, width = (1, 1) if settings.training.trainable == "head" else (data.height, data.width)
        self._batch_size = resolve_batch_size(settings.selection.batch_size, height=height, width=width)
        self._site = data.site(self._directory.name, validation=settings.validation, redraw=settings.redraw)
        self._strategy = build_strategy(settings.strategy)
        self._annotator = ANNOTATORS.get(settings.annotator.name)(self._site, folder=self._directory.path)
        self._build_network = partial(
            build_network, data=data, model=settings.model, part=settings.training.trainable, device=self._device
        )
        self._images = Images(self._site, settings.transforms, device=self._device)
        self._features: CachedFeatures | None = None
        self._frozen_params = read_frozen(settings.model)
        self._projected = ""
        """Checksum of the initial weights by whose projection the features were made."""
        self._seconds: dict[str, float] = {}
        self._trainer: tuple[object, Trainer, SelectionContext] | None = None

    def handle(self, request: messages.Request, state: SiteState) -> HandlerResult:
        """Do what a request asks."""
        self._seconds = {}
        if self._frozen_params is not None:
            if isinstance(request, messages.Train) and is_closed_form(self._settings, request.round):
                return self._sum(request, state)
            state = replace(state, sums=None)
            self._open_projected(state)
        elif request.weights is not None and self._settings.training.trainable != "all":
            with self._timed("cache"):
                spec = TrunkSpec.from_settings(self._settings, device=self._device)
                self._features = open_features(self._data, self._site, spec, read=self._images.read)
        if isinstance(request, messages.Train):
            return self._train(request, state)
        if isinstance(request, messages.CloseRound):
            return self._close_round(request, state) if request.round else self._start(request, state)
        assert isinstance(request, messages.Labels)
        answers, rejected = self._poll([])
        reply = messages.LabelsReply(key=request.key, site=self._site.name, refused=rejected)
        return HandlerResult(reply=reply, state=state, answers=answers)

    @cached_property
    def _frozen(self) -> FrozenFeatures:
        assert self._frozen_params is not None
        return FrozenFeatures(
            self._data, self._site, self._frozen_params, threads=self._settings.threads, device=self._device
        )

    def _open_projected(self, state: SiteState) -> None:
        """Open the features that heads take, by the projection in the initial weights."""
        if state.initial is None or state.initial.sha256 == self._projected:
            return
        projection, _ = split_projection(self._store.models.read_weights(state.initial))
        with self._timed("cache"):
            self._features = self._frozen.project(projection)
        self._projected = state.initial.sha256

    def _sum(self, request: messages.Train, state: SiteState) -> HandlerResult:
        """Sum features for the projection, sum labelled samples for the head, or tabulate leave-one-out losses."""
        assert request.weights is not None
        reply = messages.TrainReply(key=request.key, site=self._site.name)
        if request.round == 0:
            with self._timed("cache"):
                sums: Tensors = self._frozen.sum().tensors()
        else:
            self._open_projected(state)
            trainer, context = self._open_trainer(request.class_counts, request.round)
            shared = context.site_counts.long().tolist() if self._settings.share_class_counts else None
            reply = reply.model_copy(update={"labelled": len(trainer.samples), "class_counts": shared})
            if not len(trainer.samples):
                return HandlerResult(reply=reply, state=replace(state, sums=None))
            with self._timed("train"):
                sums = compute_head_sums(trainer.samples, context, request.weights, self._frozen.params)
        # Beside the file that the committed state refers to, should this be interrupted.
        file = self._store.models.write("sums", sums, state=state)
        reply = reply.model_copy(update={"weights": sums, "seconds": self._seconds})
        return HandlerResult(reply=reply, state=replace(state, sums=file))

    def _train(self, request: messages.Train, state: SiteState) -> HandlerResult:
        assert request.weights is not None
        network = self._build_network("global", request.weights)
        trainer, context = self._open_trainer(request.class_counts, request.round)
        statistics = self._evaluate(fold_batch_norms(network), context)[0] if request.evaluate else None
        reply = messages.TrainReply(
            key=request.key,
            site=self._site.name,
            labelled=len(trainer.samples),
            class_counts=context.site_counts.long().tolist() if self._settings.share_class_counts else None,
            statistics=statistics,
            seconds=self._seconds,
        )
        if not len(trainer.samples):
            return HandlerResult(reply=reply, state=state)
        models = self._store.models
        before = state.local if state.local_round == request.round else None
        with self._timed("train"):
            result = trainer.train(
                network,
                step=request.step,
                epochs=self._settings.training.local_epochs,
                order=self._address("order", request).generator(),
                augment=self._address("transforms", request).generator(),
                moments=models.read_moments(before) if before else None,
            )
        local = models.write("local", result.weights, state=state, moments=result.moments)
        return HandlerResult(
            reply=reply.model_copy(
                update={"weights": result.weights, "loss": result.loss, "seconds": self._seconds}
            ),
            state=replace(state, local=local, local_round=request.round),
        )

    def _start(self, request: messages.CloseRound, state: SiteState) -> HandlerResult:
        """Query the first labels: those that came with the data, at random, or by coverage of the features."""
        reply = messages.CloseRoundReply(key=request.key, site=self._site.name)
        if request.weights is not None:
            state = replace(state, initial=self._store.models.write("initial", request.weights, state=state))
        if self._frozen_params is not None:
            self._open_projected(state)
        ids = self._site.ids("train")
        if self._settings.initial_labels == "dataset":
            known = ids[self._site.is_initial("train")].tolist()
            selection = Selection(ids=known, parts={"score": torch.zeros(len(known), dtype=torch.float64)})
            labels = zip(known, open_labels(self._site).of(known).numpy(), strict=True)
            given = [Answer(sample=sample, label=to_label(label), by="given") for sample, label in labels]
            return self._query(request, state, selection, reply=reply, given=given)
        context = self._make_context(request.class_counts, 1)
        address = self._address("first labels", request)
        selection = select_first(
            self._settings.initial_labels,
            ids.tolist(),
            context,
            read=self._read,
            budget=self._allowance(asked=0),
            address=address,
        )
        return self._query(request, state, selection, reply=reply)

    def _close_round(self, request: messages.CloseRound, state: SiteState) -> HandlerResult:
        """Evaluate the round's model, and query the samples that the strategy selects."""
        assert request.weights is not None
        trainer, context = self._open_trainer(request.class_counts, request.round)
        models = make_models(
            state,
            round_=request.round,
            weights=request.weights,
            store=self._store,
            build=self._build_network,
            trainer=trainer,
            epochs=self._strategy.training_epochs,
            batch_size=self._batch_size,
            address=self._address("", request),
        )
        if self._frozen_params is not None and self._frozen_params.head == "ridge":
            samples, params = trainer.samples, self._frozen_params
            models = models.replace_local(
                lambda: self._build_network("local", fit_own_head(samples, context, request.weights or {}, params))
            )
        folded = models.fold()
        statistics, outputs = self._evaluate(folded["global"], context)
        if statistics is not None and self._settings.diagnostics:
            rows = torch.as_tensor(self._site.rows(self._site.ids("test")))
            write_tensors(self._directory.test_outputs(request.round), {"rows": rows, **outputs}, durable=False)
        selection = self._select(request, context, folded if self._strategy.folds_batch_norms else models)
        looks_back = bool(PREVIOUS_ROLES & self._strategy.required_roles())
        previous: Literal["own", "initial"] = "own" if state.before(request.round) else "initial"
        reply = messages.CloseRoundReply(
            key=request.key,
            site=self._site.name,
            statistics=statistics,
            local_model="own" if state.local is not None else "global",
            previous_model=previous if looks_back and request.ask else "none",
            rejected=selection.counts.get("rejected", 0),
            filled=selection.counts.get("filled", 0),
        )
        if looks_back:
            global_ = self._store.models.write("global", request.weights, state=state)
            state = state.with_closed(RoundModels(request.round, global_, state.local or global_))
        predict = partial(self._predict_masks, folded["global"]) if context.task == "segmentation" else None
        return self._query(request, state, selection, reply=reply, predict=predict)

    def _query(
        self,
        request: messages.CloseRound,
        state: SiteState,
        selection: Selection,
        *,
        reply: messages.CloseRoundReply,
        predict: PredictMasks | None = None,
        given: Sequence[Answer] | None = None,
    ) -> HandlerResult:
        """Pass the selection to the annotator, and collect the answers to it and to earlier queries.

        Labels that were `given` with the data need no annotator.
        """
        model = hash_tensors(request.weights) if request.weights is not None and request.round else ""
        queries = make_queries(selection, round_=request.round + 1, model=model)
        if request.ask:
            write_selection(self._directory, request.round + 1, selection.ids, selection.parts)
        if given is not None:
            return HandlerResult(reply=reply, state=state, queries=queries, answers=given)
        if request.ask:
            with self._timed("ask"):
                self._annotator.ask(queries, predict_masks=predict)
        answers, rejected = self._poll(queries)
        reply = reply.model_copy(update={"refused": rejected, "seconds": self._seconds})
        return HandlerResult(reply=reply, state=state, queries=queries, answers=answers)

    def _poll(self, queries: Sequence[Query]) -> tuple[list[Answer], int]:
        """Return the answers that are new, and the number of rejected ones."""
        pending = [*self._store.pending(), *(query.sample for query in queries)]
        gathered = self._annotator.poll(pending=pending, answered=self._store.answered())
        return self._store.find_new(gathered.answers), len(gathered.rejections)

    def _select(self, request: messages.CloseRound, context: SelectionContext, models: LazyModels) -> Selection:
        """Have the strategy select samples, and keep the models' outputs for the pool for later analysis.

        The last round selects nothing, and looks at the pool under `diagnostics: all` only.
        """
        if not request.ask and self._settings.diagnostics != "all":
            return Selection(ids=[])
        queried = self._store.queried()
        pool = Pool(
            ids=[sample for sample in self._site.ids("train").tolist() if sample not in queried],
            labelled=self._store.labelled(),
            read=self._read,
            networks=models,
            scratch=self._directory.scratch,
            device=self._device,
            batch_size=self._batch_size,
        )
        with self._timed("select"):
            selected = select_from_pool(
                self._strategy,
                pool,
                context,
                budget=self._allowance(asked=len(queried)) if request.ask else 0,
                candidates=self._settings.selection.candidates,
                diagnostics=bool(self._settings.diagnostics),
                address=self._address("select", request),
            )
        if self._settings.diagnostics:
            with self._timed("diagnose"):
                samples = {"rows": selected.candidates, "selected": selected.selection.ids}
                rows = {name: torch.as_tensor(self._site.rows(ids)) for name, ids in samples.items()}
                outputs = {**rows, **selected.outputs}
                if context.task == "segmentation":
                    outputs |= compute_maps(selected.selection.ids, pool, context)
                write_tensors(self._directory.pool_outputs(request.round), outputs, durable=False)
        return selected.selection

    def _evaluate(
        self, network: Network, context: SelectionContext
    ) -> tuple[Statistics | None, dict[str, torch.Tensor]]:
        ids = self._site.ids("test").tolist()
        if not ids:
            return None, {}
        with self._timed("evaluate"):
            return evaluate(
                network,
                ids,
                read=self._read,
                labels=open_labels(self._site).of,
                context=context,
                batch_size=self._batch_size,
                device=self._device,
                regions=self._data.regions,
                metrics=find_metrics(context.task, self._settings.metrics, self._settings.metric),
            )

    def _predict_masks(self, network: Network, ids: Sequence[str]) -> NDArray[np.uint8]:
        """Predict masks [n, height, width], for annotators to correct."""
        with torch.no_grad():
            masks: NDArray[np.uint8] = network.eval()(self._read(ids)).argmax(1).to(torch.uint8).cpu().numpy()
        return masks

    def _open_trainer(self, total: list[int] | None, round_: int) -> tuple[Trainer, SelectionContext]:
        """Return what trains on the site's labels, and their class counts; kept until either changes."""
        key = (self._store.labels_version(), total, round_, self._features is None)
        if self._trainer is None or self._trainer[0] != key:
            context = self._make_context(total, round_)
            trainer = Trainer(
                LabelledSamples(self._store, self._site, inputs=self._inputs, task=context.task),
                objective=context.objective,
                training=self._settings.training,
                steps=self._settings.communication_rounds,
                device=self._device,
            )
            self._trainer = (key, trainer, context)
        return self._trainer[1:]

    def _make_context(self, total: list[int] | None, round_: int) -> SelectionContext:
        classes = len(self._data.classes)
        counts = torch.from_numpy(self._store.class_counts(classes)).double()
        return SelectionContext(
            task=self._data.task,
            classes=classes,
            site_counts=counts,
            # The sum may be older than the site's own labels, and a class that is trained on has a count.
            total_counts=counts if total is None else torch.maximum(counts, torch.tensor(total).double()),
            loss=build_loss(self._settings.loss),
            class_count_scope=self._settings.class_count_scope,
            round=round_,
            rounds=self._settings.rounds,
        )

    @property
    def _inputs(self) -> Inputs:
        return self._features or self._images

    def _read(self, ids: Sequence[str]) -> torch.Tensor:
        return self._inputs.read(self._site.rows(ids))

    def _allowance(self, *, asked: int) -> int:
        return allowance(
            self._settings.budget,
            max_fraction=self._settings.max_labelled_fraction,
            samples=len(self._site.ids("train")),
            asked=asked,
        )

    def _address(self, purpose: str, request: messages.Request) -> Address:
        return Address(
            seed=self._settings.seed,
            purpose=purpose,
            site=self._site.name,
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
