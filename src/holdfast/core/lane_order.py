"""An index over the lanes with ready jobs, to find the next job for a worker.

A *track* is the set of lanes of one queue and route, at most one for each priority. A track is ordered within its route
by the rank of its first job (virtual arrival, then number), which does not change as time passes. Routes are
independent of each other; a worker's choice is the merged order of its routes. So the cost of finding the next job
depends only on the routes and queues that the worker names, not on other lanes or workers.

Invariants, after `refresh`:
- Every track with ready jobs has one entry: in `held` of its route if its first job waits for a worker without other
  leases (see `quarantine`), otherwise in `open`. A track of a paused queue has no entry.
- `RouteOrder.ready` is the number of ready jobs of its tracks in `open`.

The index is derived from the lanes and the time alone. It is part of no image and no digest, and replay does not build
it.
"""

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from holdfast.core.lane import Lane, LaneKey
from holdfast.core.model import JobRecord
from holdfast.core.quarantine import waits_alone_until_ms
from holdfast.core.sorted_entries import SortedEntries

#: The rank of a track's first job, the track and the job.
Entry = tuple[int, int, "Track", JobRecord]
#: A queue and a route.
TrackKey = tuple[str, str]

#: Skipping an entry of another queue is this much cheaper than looking up a queue by name and sorting.
_WALK_FACTOR = 8

#: Number of empty routes and of empty tracks that are kept, because they are likely to get jobs again.
_EMPTY_ROUTES_KEPT = _EMPTY_TRACKS_KEPT = 64


class RouteFilter(msgspec.Struct, frozen=True):
    """The jobs that a worker can run: these routes, from these queues (an empty set means all queues)."""

    routes: frozenset[str]
    queues: frozenset[str] = frozenset()


class Track:
    """The lanes of one queue and route, and their place in the order."""

    __slots__ = ("entries", "entry", "held_until_ms", "key", "lanes", "queue", "ready", "route")

    def __init__(self, queue: str, route: str) -> None:
        self.key = queue, route
        self.queue = queue
        self.route = route
        self.lanes: dict[int, Lane] = {}
        self.entry: Entry | None = None
        #: The list that has the entry: `open` or `held` of the route.
        self.entries: SortedEntries[Entry] | None = None
        #: The end of the current hold, as `releases` has it.
        self.held_until_ms = 0
        #: Number of ready jobs while its entry is in `open`, else 0.
        self.ready = 0


class RouteOrder:
    """All tracks of one route that have ready jobs and are not paused."""

    __slots__ = ("held", "open", "ready")

    def __init__(self) -> None:
        self.open: SortedEntries[Entry] = SortedEntries()
        self.held: SortedEntries[Entry] = SortedEntries()
        self.ready = 0


def virtual_arrival(job: JobRecord, aging_ms: int) -> int:
    """The arrival time of the job, moved earlier by `aging_ms` for each priority level.

    The time before the job is due does not count as waiting. With `aging_ms` 0, priority alone decides.
    """
    priority = job.template.priority
    return max(job.created_ms, job.not_before_ms) - priority * aging_ms if aging_ms else -priority


class LaneOrder:
    """The index. `paused` is the ready queue's own set of paused queues."""

    __slots__ = (
        "_count",
        "_held",
        "_lanes",
        "_news",
        "_paused",
        "_routes",
        "_ticket",
        "_tracks",
        "aging_ms",
        "filled",
        "now_ms",
        "releases",
        "visits",
    )

    def __init__(self, lanes: Mapping[LaneKey, Lane], paused: Collection[str], aging_ms: int) -> None:
        self._lanes = lanes
        self._paused = paused
        self.aging_ms = aging_ms
        self._routes: dict[str, RouteOrder] = {}
        #: By queue and route.
        self._tracks: dict[str, dict[str, Track]] = {}
        #: A heap of the times at which held tracks must be filed again.
        self.releases: list[tuple[int, int, Track]] = []
        self._ticket = 0
        #: Number of tracks, of tracks with ready jobs, and of held tracks.
        self._count = self.filled = self._held = 0
        #: Changed tracks with ready jobs; None until the first call of `news`.
        self._news: OrderedDict[TrackKey, None] | None = None
        #: The time of the last `refresh`.
        self.now_ms = 0
        #: Number of entries examined so far: a measure of the cost of decisions.
        self.visits = 0

    # -- maintenance

    def refresh(self, changed: Collection[LaneKey], now_ms: int) -> None:
        """Updates the places of changed lanes, and of held tracks whose time is over."""
        self.now_ms = now_ms
        if len(changed) == 1 and not self.releases:
            for key in changed:
                self._file(self._changed(key), now_ms)
            return
        touched: dict[Track, None] = {}
        for key in changed:
            touched[self._changed(key)] = None
        releases = self.releases
        while releases and releases[0][0] <= now_ms:
            track = heapq.heappop(releases)[2]
            if track.lanes:
                touched[track] = None
        for track in touched:
            self._file(track, now_ms)

    def lanes_of(self, queue: str) -> list[LaneKey]:
        """The keys of all lanes of a queue."""
        tracks = self._tracks.get(queue, {}).values()
        return [lane.key for track in tracks for lane in track.lanes.values()]

    def _changed(self, key: LaneKey) -> Track:
        queue, route, priority = key
        tracks = self._tracks.get(queue)
        if tracks is None:
            tracks = self._tracks[queue] = {}
        track = tracks.get(route)
        if track is None:
            track = tracks[route] = Track(queue, route)
            self._count += 1
        lane, lanes = self._lanes.get(key), track.lanes
        if lane is not None:
            self.filled += not lanes
            lanes[priority] = lane
        elif priority in lanes:
            del lanes[priority]
            self.filled -= not lanes
        self.visits += 1
        return track

    def _file(self, track: Track, now_ms: int) -> None:
        order = self._routes.get(track.route)
        if order is None:
            order = self._routes[track.route] = RouteOrder()
        entry, ready, entries, lanes = None, 0, None, track.lanes
        if lanes and track.queue not in self._paused:
            entry, ready = self._first(track)
            job, entries = entry[3], order.open
            if job.losses:
                entries = self._entries_for(track, job, order, now_ms)
                ready = ready if entries is order.open else 0
        is_moved = track.entries is not entries or track.entry != entry
        if is_moved:
            self._move(track, entry, entries, order)
        order.ready += ready - track.ready
        track.ready = ready
        if not lanes:
            self._emptied(track)
            if not order.open.size and not order.held.size and len(self._routes) > _EMPTY_ROUTES_KEPT:
                del self._routes[track.route]
        elif self._news is not None and (ready or (entries is not None and is_moved)):
            self._news[track.key] = None

    def _entries_for(self, track: Track, job: JobRecord, order: RouteOrder, now_ms: int) -> SortedEntries[Entry]:
        until_ms = waits_alone_until_ms(job)
        if until_ms <= now_ms:
            return order.open
        if until_ms != track.held_until_ms:
            track.held_until_ms = until_ms
            self._ticket += 1
            heapq.heappush(self.releases, (until_ms, self._ticket, track))
        return order.held

    def _first(self, track: Track) -> tuple[Entry, int]:
        """The entry of a non-empty track, and its number of ready jobs."""
        aging_ms, lanes = self.aging_ms, track.lanes.values()
        if len(lanes) == 1:
            (lane,) = lanes
            job = lane.head
            return (virtual_arrival(job, aging_ms), job.number, track, job), lane.ready
        heads = [lane.head for lane in lanes]
        arrival_ms, number, job = min((virtual_arrival(job, aging_ms), job.number, job) for job in heads)
        return (arrival_ms, number, track, job), sum([lane.ready for lane in lanes])

    def _move(self, track: Track, entry: Entry | None, entries: SortedEntries[Entry] | None, order: RouteOrder) -> None:
        if track.entries is not None and track.entry is not None:
            track.entries.remove(track.entry)
            self._held -= track.entries is order.held
        if entries is not None and entry is not None:
            entries.add(entry)
            self._held += entries is order.held
        track.entries, track.entry = entries, entry

    def _emptied(self, track: Track) -> None:
        if self._news is not None:
            self._news.pop(track.key, None)
        if self._count - self.filled > _EMPTY_TRACKS_KEPT:
            tracks = self._tracks[track.queue]
            del tracks[track.route]
            self._count -= 1
            if not tracks:
                del self._tracks[track.queue]

    # -- queries

    def news(self) -> OrderedDict[TrackKey, None]:
        """Tracks that may have more ready jobs than before. The caller removes those that it has handled."""
        if self._news is None:
            tracks = [track for some in self._tracks.values() for track in some.values() if track.lanes]
            self._news = OrderedDict.fromkeys([track.key for track in tracks])
        return self._news

    def ready_in(self, queue: str, route: str) -> int:
        """Ready jobs of a route that any worker may get, in one queue or, if `queue` is empty, in all queues."""
        if queue:
            tracks = self._tracks.get(queue)
            track = tracks.get(route) if tracks else None
            return track.ready if track is not None else 0
        order = self._routes.get(route)
        return order.ready if order is not None else 0

    def is_held(self, queue: str, route: str) -> bool:
        """Whether the first job of this queue and route waits for a worker without other leases."""
        if not self._held:
            return False
        track = self._tracks.get(queue, {}).get(route)
        return track is not None and track.entries is not None and track.entries is self._routes[route].held

    def next_track(self, route_filter: RouteFilter) -> TrackKey | None:
        """Queue and route of the next job for a worker; held jobs count only if no other job is ready."""
        entry = next(self._walk(route_filter, is_held=False), None) if self.filled else None
        if entry is None and self._held:
            entry = next(self._walk(route_filter, is_held=True), None)
        return entry[2].key if entry is not None else None

    def choose(self, route_filter: RouteFilter | None, count: int, now_ms: int, *, is_free: bool) -> list[JobRecord]:
        """The next jobs for a worker, in order.

        A job on its last chance is returned alone, and only for a worker that `is_free` (holds no lease). Until then it
        blocks the jobs behind it on its track; other tracks are not affected.
        """
        if count <= 0:
            return []
        walk = self._walk(route_filter, is_held=False)
        upcoming = next(walk, None)
        if is_free and self._held:
            held = next(self._walk(route_filter, is_held=True), None)
            if held is not None and (upcoming is None or held < upcoming):
                return [held[3]]
        if upcoming is None:
            return []
        if count == 1:
            return [upcoming[3]]
        choice = _TrackWalk(self.aging_ms, now_ms)
        chosen = choice.taken(upcoming, walk, count)
        self.visits += choice.opened
        return chosen

    def _walk(self, route_filter: RouteFilter | None, *, is_held: bool) -> Iterator[Entry]:
        """Entries of wanted tracks, in order."""
        if route_filter is not None and not route_filter.queues and len(route_filter.routes) == 1:
            (route,) = route_filter.routes
            self.visits += 2
            order = self._routes.get(route)
            return iter(order.held if is_held else order.open) if order is not None else iter(())
        orders = self._orders(route_filter)
        self.visits += 1 + len(orders)
        lists = [entries for order in orders if (entries := order.held if is_held else order.open).size]
        if route_filter is None or not route_filter.queues:
            walks: list[Iterable[Entry]] = [*lists]
        elif sum([entries.size for entries in lists]) <= _WALK_FACTOR * len(route_filter.queues):
            walks = [self._of_queues(entries, route_filter.queues) for entries in lists]
        else:
            walks = [self._looked_up(route_filter, is_held=is_held)]
        return iter(walks[0]) if len(walks) == 1 else heapq.merge(*walks)

    def _orders(self, route_filter: RouteFilter | None) -> list[RouteOrder]:
        routes = self._routes
        if route_filter is None:
            return list(routes.values())
        if len(route_filter.routes) <= len(routes):
            return [routes[route] for route in route_filter.routes if route in routes]
        return [order for route, order in routes.items() if route in route_filter.routes]

    def _of_queues(self, entries: Iterable[Entry], queues: frozenset[str]) -> Iterator[Entry]:
        for entry in entries:
            self.visits += 1
            if entry[2].queue in queues:
                yield entry

    def _looked_up(self, route_filter: RouteFilter, *, is_held: bool) -> list[Entry]:
        found, routes = list[Entry](), self._routes
        for queue in route_filter.queues:
            tracks = self._tracks.get(queue, {})
            self.visits += 1 + min(len(tracks), len(route_filter.routes))
            if len(tracks) <= len(route_filter.routes):
                some = [track for route, track in tracks.items() if route in route_filter.routes]
            else:
                some = [tracks[route] for route in route_filter.routes if route in tracks]
            for track in some:
                if track.entry is not None and track.entries is not None:
                    order = routes[track.route]
                    if track.entries is (order.held if is_held else order.open):
                        found.append(track.entry)
        found.sort()
        return found

    def audit(self) -> None:
        """Checks the index against the lanes; slow, for tests."""
        tracks = [track for some in self._tracks.values() for track in some.values()]
        assert {lane.key: lane for track in tracks for lane in track.lanes.values()} == self._lanes
        assert (self._count, self.filled) == (len(tracks), sum(1 for track in tracks if track.lanes))
        for track in tracks:
            if not track.lanes:
                assert (track.entry, track.entries, track.ready) == (None, None, 0)
                continue
            assert all(lane.key[:2] == (track.queue, track.route) for lane in track.lanes.values())
            entry, ready = self._first(track)
            if track.queue in self._paused:
                assert (track.entries, track.ready) == (None, 0)
                continue
            order, is_held = self._routes[track.route], waits_alone_until_ms(entry[3]) > self.now_ms
            assert (track.entry, track.entries) == (entry, order.held if is_held else order.open)
            assert entry in list(order.held if is_held else order.open)
            assert track.ready == (0 if is_held else ready)
        for route, order in self._routes.items():
            entries = [*order.open, *order.held]
            assert all(entry[2].route == route for entry in entries)
            assert list(order.open) == sorted(order.open)
            assert order.ready == sum(entry[2].ready for entry in entries)


#: The rank of a lane's next job, the job, the jobs after it, and its track.
_Head = tuple[int, int, JobRecord, Iterator[JobRecord], Track]


class _TrackWalk:
    """One walk over tracks in order; a track is opened only when its first job may be next."""

    __slots__ = ("_aging_ms", "_heads", "_held_back", "_now_ms", "opened")

    def __init__(self, aging_ms: int, now_ms: int) -> None:
        self._aging_ms = aging_ms
        self._now_ms = now_ms
        self._heads: list[_Head] = []
        self._held_back: set[Track] = set()
        #: Number of lanes that were opened.
        self.opened = 0

    def taken(self, first: Entry, walk: Iterator[Entry], count: int) -> list[JobRecord]:
        """The next jobs of the tracks of a walk that begins with `first`."""
        heads, chosen = self._heads, list[JobRecord]()
        upcoming: Entry | None = first
        while len(chosen) < count:
            while upcoming is not None and (not heads or upcoming < heads[0]):
                self._open(upcoming[2])
                upcoming = next(walk, None)
            if not heads:
                break
            if upcoming is None and len(heads) == 1:
                self._take_rest(chosen, count)
                break
            _, _, job, rest, track = heapq.heappop(heads)
            if self._may_take(job, track):
                chosen.append(job)
                self._push(next(rest, None), rest, track)
        return chosen

    def _may_take(self, job: JobRecord, track: Track) -> bool:
        if job.losses and waits_alone_until_ms(job) > self._now_ms:
            self._held_back.add(track)
        return track not in self._held_back

    def _open(self, track: Track) -> None:
        self.opened += len(track.lanes)
        for lane in track.lanes.values():
            jobs = lane.in_order()
            self._push(next(jobs, None), jobs, track)

    def _push(self, job: JobRecord | None, rest: Iterator[JobRecord], track: Track) -> None:
        if job is not None:
            heapq.heappush(self._heads, (virtual_arrival(job, self._aging_ms), job.number, job, rest, track))

    def _take_rest(self, chosen: list[JobRecord], count: int) -> None:
        """The fast path for a single remaining lane."""
        _, _, job, rest, track = self._heads[0]
        while self._may_take(job, track):
            chosen.append(job)
            following = next(rest, None) if len(chosen) < count else None
            if following is None:
                break
            job = following
