"""The members of a set (voters and learners), and the routers that are to become its voters (protocol 13.1)."""

from collections.abc import Collection, Mapping

import attrs


@attrs.frozen(order=True, slots=True)
class Replica:
    """A router together with the identity of its store. If the disk of a router is replaced, the router becomes another
    member."""

    router: str
    store: bytes


@attrs.frozen(slots=True)
class Configuration:
    """The members of a set, and the routers that are to become its voters."""

    voters: tuple[Replica, ...]
    learners: tuple[Replica, ...] = ()
    ring: tuple[str, ...] = ()
    """The routers that are to be the voters. The leader changes the members step by step until these routers, and no
    others, are voters."""
    copies: tuple[str, ...] = ()
    """The routers that keep an asynchronous copy: they are learners, and never become voters."""

    @property
    def members(self) -> tuple[Replica, ...]:
        return self.voters + self.learners

    def is_majority(self, members: Collection[Replica]) -> bool:
        """Whether these members include a majority of the voters."""
        return 2 * sum(voter in members for voter in self.voters) > len(self.voters)

    def agreed(self, stored: Mapping[Replica, int]) -> int:
        """The highest log index that a majority of the voters has stored. `stored`: for each voter, the last index that
        it has stored."""
        indices = sorted((stored.get(voter, 0) for voter in self.voters), reverse=True)
        return indices[len(indices) // 2]

    def with_learner(self, member: Replica) -> "Configuration":
        return attrs.evolve(self, learners=(*self.learners, member))

    def promoting(self, learner: Replica) -> "Configuration":
        learners = tuple(member for member in self.learners if member != learner)
        return attrs.evolve(self, voters=(*self.voters, learner), learners=learners)

    def demoting(self, voter: Replica) -> "Configuration":
        """This configuration with the voter as a learner. Raises ValueError if no voter is left."""
        return self.without(voter).with_learner(voter)

    def without(self, member: Replica) -> "Configuration":
        """This configuration without the member. Raises ValueError if no voter is left."""
        voters = tuple(voter for voter in self.voters if voter != member)
        if not voters:
            raise ValueError(f"router {member.router} is the only voter")
        learners = tuple(learner for learner in self.learners if learner != member)
        return attrs.evolve(self, voters=voters, learners=learners)

    def differs_by_one(self, other: "Configuration") -> bool:
        """Whether the voters of this configuration and of the other one differ by at most one. If so, each majority of
        the one has a voter in common with each majority of the other (Raft, 4.1)."""
        return len(set(self.voters) ^ set(other.voters)) <= 1
