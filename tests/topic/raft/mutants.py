"""Each rule of consensus broken on purpose, with a seed of the walk, a scenario or a scope that notices it.

python -m tests.topic.raft.mutants [NAME…] [--seeds N]     # looks for seeds, and prints them
"""

import argparse
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from types import ModuleType
from typing import Any
from unittest.mock import patch

import attrs
import pytest

from tests.topic.raft import test_snapshots, test_traps
from tests.topic.raft.scopes import LONG, QUICK
from tests.topic.raft.search import Search
from tests.topic.raft.walk import Walk
from topic.raft.configuration import Configuration
from topic.raft.digests import Digests
from topic.raft.leadership import Leadership
from topic.raft.log import RaftLog
from topic.raft.progress import FollowerProgress
from topic.raft.raft import Raft
from topic.raft.storage import Storage
from topic.raft.stores import KnownStores


@attrs.frozen
class Mutant:
    """A method with one piece of its text replaced by another."""

    owner: Any
    method: str
    old: str
    new: str
    rule: str
    """The rule that the replaced text keeps."""
    by: int | str
    """What notices the mutant: a seed of the walk, the name of a scenario of `test_traps.py` or `test_snapshots.py`, or
    the name of a scope of the search."""

    @property
    def name(self) -> str:
        return f"{self.owner.__name__}.{self.method}: {self.rule}"

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The mutant is in place within this context. Raises ValueError unless the text occurs exactly once."""
        method = inspect.getattr_static(self.owner, self.method)
        function: Any = method.fget if isinstance(method, property) else method
        source = textwrap.dedent(inspect.getsource(function))
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} stands there {source.count(self.old)} times")
        scope: dict[str, Any] = {}
        exec(compile(source.replace(self.old, self.new), "mutant", "exec"), function.__globals__, scope)
        changed = scope[self.method]
        with patch.object(self.owner, self.method, changed):
            handlers = Raft._HANDLERS if self.owner is Raft else {}
            with patch.dict(handlers, {body: changed for body, one in handlers.items() if one is function}):
                yield


M = Mutant
MUTANTS = [
    M(Raft, "_take_vote", "self.hard.vote in (None, sender)", "True", "one vote in a term", 4),
    M(
        Raft,
        "_take_vote",
        "self.log.is_no_newer_than(body.last, body.last_term)",
        "True",
        "a vote for a complete log",
        "test_a_log_that_lacks_what_is_decided_does_not_win",
    ),
    M(Raft, "_take_vote", "self._send_when_stored(", "self._send(", "a vote is on the disk before it leaves", 0),
    M(
        Raft,
        "_ask_for_vote",
        "self._send_when_stored(voter",
        "self._send(voter",
        "a term is on the disk before a candidate stands in it",
        0,
    ),
    M(
        Raft,
        "_is_of_my_life",
        "envelope.life < self.stores.latest_life",
        "False",
        "a store takes no life that a later one has made void",
        "test_a_store_without_a_life_takes_no_earlier_one_than_a_router_in_contact_has",
    ),
    M(
        Raft,
        "recover",
        "self.hard.begun and self.log.last",
        "self.hard.begun",
        "an empty store is not recovered",
        "test_a_store_without_an_entry_is_not_recovered",
    ),
    M(
        Raft,
        "_tell_of_latest_life",
        "self._outbox.append(Send(Envelope(latest",
        "(Send(Envelope(latest",
        "the leader of an earlier life is told of the later one",
        "test_the_leader_of_an_earlier_life_is_told_of_a_later_one",
    ),
    M(
        Raft,
        "_take_pre_vote",
        "self.leader is None and self.log",
        "self.log",
        "a follower refuses pre-votes",
        "test_a_router_that_cannot_see_the_leader_disturbs_nobody",
    ),
    M(
        Raft,
        "_take_pre_vote",
        "self.leader is None and self.log.is_no_newer_than(body.last, body.last_term)",
        "self.leader is None",
        "a pre-vote for a complete log",
        "test_a_log_that_lacks_what_is_decided_begins_no_term",
    ),
    M(
        Raft,
        "_enter",
        "self._matched = self._acknowledged = 0",
        "pass",
        "a log is compared anew with each leader",
        "test_an_empty_append_decides_nothing_that_was_not_compared",
    ),
    M(
        Raft,
        "_match",
        "min(commit, self._matched)",
        "min(commit, self.log.last)",
        "only compared entries are decided",
        "test_an_empty_append_decides_nothing_that_was_not_compared",
    ),
    M(
        Raft,
        "_acknowledge",
        "min(self.log.stable, self._matched)",
        "self._matched",
        "an acknowledged entry is on the disk",
        "entries",
    ),
    M(
        Raft,
        "_acknowledge",
        "min(self.log.stable, self._matched)",
        "self.log.stable",
        "an acknowledged entry is the leader's",
        "test_an_empty_append_decides_nothing_that_was_not_compared",
    ),
    M(
        Raft,
        "_acknowledge",
        "self._storage.hard.term == self.hard.term",
        "True",
        "a term is on the disk before an acknowledgement in it",
        "test_a_term_is_on_the_disk_before_an_acknowledgement_in_it",
    ),
    M(
        Raft,
        "persisted",
        "if stored.vote == self.me:\n        self._take_granted(self.me, stored.term",
        "if True:\n        self._take_granted(self.me, self.hard.term",
        "a candidate's own vote is on its disk",
        "test_a_candidate_counts_its_own_vote_when_its_disk_has_it",
    ),
    M(
        Raft,
        "disconnect",
        "not self.leadership.has_majority",
        "False",
        "a leader without a majority resigns",
        "a leader alone",
    ),
    M(
        Raft,
        "_stop_leading",
        "self.leadership.resign()",
        "pass",
        "a leader that resigns says so",
        "test_an_idle_set_sends_nothing_and_has_a_leader_again_when_one_resigns",
    ),
    M(
        Raft,
        "_take_resigned",
        "self._follow_nobody(now)",
        "pass",
        "nobody follows a leader that has resigned",
        "test_an_idle_set_sends_nothing_and_has_a_leader_again_when_one_resigns",
    ),
    M(
        Raft,
        "_follow",
        "term < self.hard.term",
        "False",
        "nobody follows a leader of an earlier term",
        "test_a_leader_of_an_earlier_term_is_told_so",
    ),
    M(
        Raft,
        "_follow",
        "self._send(leader, say.Outdated(self.hard.term))",
        "pass",
        "a leader of an earlier term is told",
        "test_a_leader_of_an_earlier_term_is_told_so",
    ),
    M(
        Raft,
        "_is_of_my_life",
        "envelope.life < self.hard.life",
        "False",
        "an earlier life is void",
        "test_a_message_of_an_earlier_life_is_void",
    ),
    M(
        Raft,
        "_take_greeting",
        "not self.hard.begun or known.life > self.hard.life",
        "False",
        "a store of an earlier life is set aside",
        "test_two_lives_may_begin_at_one_clock",
    ),
    M(
        Raft,
        "_may_stand",
        "self.log.may_stand(self.me)",
        "True",
        "only voters stand",
        "test_a_learner_does_not_stand",
    ),
    M(
        Raft,
        "_may_stand",
        "not self._disk_hangs(now)",
        "True",
        "a replica whose disk hangs does not stand",
        "test_a_replica_whose_disk_hangs_does_not_stand",
    ),
    M(
        Raft,
        "tick",
        "self.leadership.hand_over_to_best(now)",
        "pass",
        "a leader whose disk hangs hands over",
        "test_leadership_moves_from_a_disk_that_hangs",
    ),
    M(
        Raft,
        "receive",
        "envelope.receiver == self.me",
        "True",
        "a message is for one store",
        "test_a_message_for_an_earlier_store_is_void",
    ),
    M(
        Raft,
        "_try_effect",
        "self._storage.hard.life == self.hard.life != NO_LIFE",
        "self.hard.life != NO_LIFE",
        "an accepted life is on the disk",
        "test_a_set_begins_when_all_have_accepted",
    ),
    M(
        Raft,
        "_new_life",
        "self.me.router",
        '"every router"',
        "the name of a life has the router",
        "test_two_lives_may_begin_at_one_clock",
    ),
    M(
        Raft,
        "_take_proposal",
        "not self.hard.life or",
        "True or",
        "a store accepts one life for ever",
        "test_a_store_accepts_one_life_for_ever",
    ),
    M(
        Raft,
        "_take_distrust",
        "self.set_aside(",
        "str(",
        "a store that lost entries is set aside",
        "test_a_disk_that_lost_what_it_had_acknowledged_is_set_aside",
    ),
    M(
        KnownStores,
        "is_in_effect",
        "any(known.begun for known in same) or accepted.issuperset(configuration.voters)",
        "len(accepted) * 2 > len(configuration.voters)",
        "a set begins when all have accepted",
        "test_a_set_begins_when_all_have_accepted",
    ),
    M(
        KnownStores,
        "first_voters",
        " or any(known.begun or (known.life and not anew) for known in others)",
        "",
        "a set that has begun does not begin again",
        "test_a_set_does_not_begin_while_one_store_remembers_it",
    ),
    M(
        KnownStores,
        "is_heard",
        "known.mapping == self.mapping",
        "True",
        "a router with another map is not heard",
        "test_another_map_of_names_gets_no_answer",
    ),
    M(
        Leadership,
        "decide",
        " and self._log.term(index) == self.term",
        "",
        "a leader decides by entries of its own term",
        "test_entries_of_an_earlier_term_are_decided_with_one_of_this_term",
    ),
    M(
        Leadership,
        "decide",
        "self._me: self._log.stable",
        "self._me: self._log.last",
        "a leader counts its own disk",
        1,
    ),
    M(
        Leadership,
        "may_configure",
        "self._log.term(commit) == self.term and ",
        "",
        "members change behind an entry of the leader's term",
        "test_members_change_behind_an_entry_of_the_term",
    ),
    M(
        Leadership,
        "may_configure",
        " and self._log.configured_at <= commit",
        "",
        "members change one at a time",
        "test_voters_change_one_at_a_time",
    ),
    M(
        Leadership,
        "configure",
        "not configuration.differs_by_one(self._log.configuration)",
        "False",
        "one vote changes at a time",
        "test_voters_change_one_at_a_time",
    ),
    M(
        Leadership,
        "_next_configuration",
        " and progress.is_caught_up(self._log.last, now, self._limits.election)",
        "",
        "a learner has all that is decided before it votes",
        "test_a_learner_has_all_that_is_decided_before_it_votes",
    ),
    M(
        Leadership,
        "propose",
        "if self._handing_over is not None:",
        "if False:",
        "a leader that hands over proposes nothing",
        "test_a_transfer_that_fails_ends_and_the_leader_goes_on",
    ),
    M(
        Leadership,
        "go_on_handing_over",
        "self._log.commit == self._log.last == self.progress[change.to].stored",
        "True",
        "the next leader has all that the former one has",
        "test_a_transfer_waits_until_the_other_has_all",
    ),
    M(
        Raft,
        "begin_anew",
        "self.hard.begun and not self.log.last and self.leader is None",
        "False",
        "a store with a life and no entry does not keep a set from its beginning",
        "test_a_set_begins_anew_although_a_store_has_a_life_and_no_entry",
    ),
    M(
        Raft,
        "begin_anew",
        " and self.leader is None",
        "",
        "no set begins anew while a replica leads it",
        "test_a_store_without_an_entry_is_a_learner_again_if_its_leader_comes_back",
    ),
    M(
        Leadership,
        "go_on_handing_over",
        "change.to not in self.successors",
        "False",
        "no leader hands over to a router that is about to stop",
        "test_a_transfer_ends_if_the_next_leader_is_about_to_stop",
    ),
    M(
        Leadership,
        "give_up_handing_over",
        "self._handing_over = None",
        "pass",
        "a transfer that fails ends",
        "test_a_transfer_that_fails_ends_and_the_leader_goes_on",
    ),
    M(
        Leadership,
        "_take_lacking",
        "body.index < progress.stored",
        "False",
        "a disk that lost acknowledged entries is not trusted",
        "test_a_disk_that_lost_what_it_had_acknowledged_is_set_aside",
    ),
    M(
        Configuration,
        "is_majority",
        "2 *",
        "3 *",
        "a majority is more than half",
        "test_an_operator_is_told_if_no_majority_has_the_same_state",
    ),
    M(
        Configuration,
        "agreed",
        "indices[len(indices) // 2]",
        "indices[(len(indices) - 1) // 2]",
        "half is no majority",
        0,
    ),
    M(
        RaftLog,
        "stable",
        "min(self._last_written, min(changed, self._unwritten) - 1)",
        "self._last_written",
        "an old write confirms nothing that was overwritten",
        "test_an_old_write_confirms_nothing_that_was_overwritten",
    ),
    M(
        RaftLog,
        "_truncate",
        "self._configurations.pop()",
        "break",
        "a configuration goes with its entry",
        "test_a_configuration_goes_with_its_entry",
    ),
    M(
        RaftLog,
        "merge",
        "if not self.has(index, entry.term):",
        "if index > self.last:",
        "a leader's entries replace others",
        "test_an_old_write_confirms_nothing_that_was_overwritten",
    ),
    M(
        FollowerProgress,
        "learn",
        "self.probe is not None and agreed >= self.probe",
        "self.probe is not None",
        "only the entry asked about is an answer",
        "test_only_the_entry_that_was_asked_about_is_an_answer",
    ),
    M(
        FollowerProgress,
        "disconnected",
        "self.next = self._told = 0",
        "pass",
        "a contact that ends loses what was under way",
        35,
    ),
    M(
        FollowerProgress,
        "lacks_commit",
        "self._told < min(log.commit, self.next - 1)",
        "False",
        "followers are told which entries are decided",
        "entries",
    ),
    M(
        Storage,
        "hold",
        "self._number if self._has_all(hard) else self._number + 1",
        "self._number",
        "a message waits for the write that has it",
        0,
    ),
    M(Storage, "release", "number < oldest", "True", "a message waits for its write", 0),
    # beginning
    M(
        KnownStores,
        "first_voters",
        "{*self.ring, *self._routers}",
        "{*self.ring}",
        "all routers are in contact when a set begins",
        "test_a_set_does_not_begin_while_a_router_may_have_it",
    ),
    M(
        KnownStores,
        "first_voters",
        " and known.ring == self.ring",
        "",
        "all files name the same voters when a set begins",
        "test_two_files_do_not_begin_a_set_twice",
    ),
    M(
        Raft,
        "_greet",
        "stored.life != self.hard.life",
        "False",
        "a store that is to have a life does not seem empty",
        "test_a_router_is_told_of_a_life_when_it_is_on_the_disk",
    ),
    M(
        Raft,
        "follow_ring",
        "self._greet()",
        "pass",
        "routers are told of other voters",
        "test_two_files_do_not_begin_a_set_twice",
    ),
    M(
        Raft,
        "begin_anew",
        "self._begins_anew and",
        "False and",
        "a second request ends no beginning that goes on",
        "test_an_operator_who_asks_twice_begins_a_set_once",
    ),
    M(
        KnownStores,
        "may_accept",
        "self.first_voters(anew=True) == configuration",
        "True",
        "a beginning without a store goes on no more",
        "test_an_operator_asks_again_when_another_store_is_lost",
    ),
    M(
        KnownStores,
        "may_accept",
        "is_latest and",
        "",
        "a beginning goes on no more if a store has a later life",
        "test_an_operator_asks_again_when_a_store_has_a_later_life",
    ),
    # members
    M(
        Leadership,
        "_next_configuration",
        "present.ring",
        "self._stores.ring",
        "no file changes the voters of a set that has begun",
        "test_another_file_changes_no_voters_of_a_set_that_has_begun",
    ),
    M(
        Raft,
        "recover",
        "attrs.evolve(self.log.configuration, voters=(self.me,), learners=())",
        "Configuration((self.me,), copies=self.log.configuration.copies)",
        "who is to be a voter outlives a recovery",
        "test_a_set_that_was_recovered_gets_the_voters_that_it_is_to_have",
    ),
    # elections
    M(
        Raft,
        "_back_off",
        "1 << self._elections_lost",
        "1",
        "lost elections lengthen timers",
        "test_a_leader_is_elected_over_links_that_are_slower_than_timers",
    ),
    M(
        Raft,
        "disconnect",
        "self._election.granted.discard(member)",
        "pass",
        "votes count while their voters are in contact",
        "test_a_candidate_counts_only_votes_of_voters_in_contact",
    ),
    M(
        Raft,
        "_notice_term",
        "self._send(self._leader, say.Outdated(term))",
        "pass",
        "a former leader is told of a later term",
        "test_a_former_leader_is_told_of_a_later_term",
    ),
    M(
        Leadership,
        "resign",
        "self._stores.all()",
        "[known for known in self._stores.all() if known.member in self.progress]",
        "all in contact are told that a leader resigns",
        "test_a_router_that_was_a_member_learns_that_its_leader_has_resigned",
    ),
    M(
        RaftLog,
        "may_stand",
        "2 if self.configured_at > self.commit else 1",
        "1",
        "a voter that is being taken out stands",
        "test_a_voter_that_takes_itself_out_stands_until_that_is_decided",
    ),
    M(
        Leadership,
        "mend",
        " and self._is_in_contact(wanted)",
        "",
        "a majority of new voters is in contact",
        "test_members_change_while_a_majority_of_the_new_voters_is_in_contact",
    ),
    # asynchronous copies
    M(
        Leadership,
        "_next_configuration",
        "for router in (*ring, *present.copies):",
        "for router in ring:",
        "a copy becomes a learner",
        "test_an_asynchronous_copy_has_everything_and_no_vote",
    ),
    M(
        Leadership,
        "_next_configuration",
        "learner.router in ring and ",
        "",
        "a copy gets no vote",
        "test_an_asynchronous_copy_has_everything_and_no_vote",
    ),
    M(
        Leadership,
        "_next_configuration",
        "learner.router not in (*ring, *present.copies)",
        "learner.router not in ring",
        "a copy stays",
        "test_an_asynchronous_copy_has_everything_and_no_vote",
    ),
    M(
        Leadership,
        "_next_configuration",
        "present.demoting(member) if member.router in present.copies else present.without(member)",
        "present.without(member)",
        "a voter becomes a copy without leaving",
        "test_a_voter_becomes_an_asynchronous_copy_in_one_step",
    ),
    M(
        Raft,
        "recover",
        "attrs.evolve(self.log.configuration, voters=(self.me,), learners=())",
        "Configuration((self.me,), ring=self.log.configuration.ring)",
        "a recovered set has copies again",
        "test_a_set_is_recovered_from_an_asynchronous_copy",
    ),
    # rounds
    M(
        FollowerProgress,
        "is_caught_up",
        "self._round_to:",
        "last:",
        "a learner catches up in rounds",
        "test_a_learner_that_keeps_pace_becomes_a_voter_under_load",
    ),
    M(
        FollowerProgress,
        "is_caught_up",
        "lasted <= quick",
        "True",
        "the last round of a learner is quick",
        "test_a_learner_that_keeps_pace_becomes_a_voter_under_load",
    ),
    M(
        FollowerProgress,
        "is_caught_up",
        "self.stored == last or ",
        "",
        "a learner that has all has caught up",
        "test_a_learner_that_has_all_is_caught_up_however_long_it_took",
    ),
    # snapshots
    M(
        RaftLog,
        "install",
        "min(self._unwritten, snapshot.index)",
        "snapshot.index + 1",
        "a snapshot is stable when it is on the disk",
        "test_a_snapshot_is_stable_when_its_own_write_ends",
    ),
    M(
        RaftLog,
        "compact",
        "[(index, snapshot.configuration)]",
        "[]",
        "a snapshot has the members",
        "test_a_log_goes_on_behind_its_snapshot",
    ),
    M(
        RaftLog,
        "is_written",
        " and self.snapshot == self._written_snapshot",
        "",
        "a snapshot is written",
        "test_a_read_comes_after_the_write_of_the_snapshot",
    ),
    M(
        RaftLog,
        "latest_up_to",
        "index if index >= self.snapshot.index else None",
        "max(index, self.snapshot.index)",
        "a log that differs before the snapshot gets the snapshot",
        "test_a_follower_keeps_its_state_and_its_log_until_all_pieces_are_there",
    ),
    M(
        Storage,
        "_has_all",
        " and not self._pieces",
        "",
        "a piece is on the disk before it is told",
        "test_a_piece_is_on_the_disk_before_it_is_acknowledged",
    ),
    M(
        FollowerProgress,
        "lacks_entries",
        "self.next <= log.snapshot.index",
        "False",
        "a member whose entries are gone gets the snapshot",
        "test_a_follower_is_sent_a_snapshot_if_its_entries_go_in_the_meantime",
    ),
    M(
        FollowerProgress,
        "next_append",
        "self.stored >= log.snapshot.index and ",
        "",
        "a window counts entries in the snapshot",
        "test_a_window_stays_closed_while_its_entries_are_in_the_snapshot",
    ),
    M(
        Leadership,
        "replicate",
        "self._tell_by = min(self._tell_by, now + self._limits.told)",
        "pass",
        "members are told what is decided when no entries follow",
        "test_followers_are_told_what_is_decided_with_the_next_entries_or_soon",
    ),
    M(
        Leadership,
        "replicate",
        "is_due = now >= self._tell_by",
        "is_due = True",
        "what is decided goes with the next entries",
        "test_followers_are_told_what_is_decided_with_the_next_entries_or_soon",
    ),
    M(
        FollowerProgress,
        "next_piece",
        "self._is_reading = True",
        "pass",
        "one piece is under way",
        "test_one_piece_is_on_its_way_at_a_time",
    ),
    M(
        FollowerProgress,
        "disconnected",
        "self.probe = self._piece = self._sent = None",
        "self.probe = None",
        "a member is asked in each contact what it has of a snapshot",
        "test_a_piece_that_was_read_for_an_earlier_contact_is_not_sent",
    ),
    M(
        FollowerProgress,
        "take_piece",
        "self._piece, self._sent, self.probe = None, None, piece.snapshot.index",
        "self._piece = self._sent = None",
        "entries follow the snapshot",
        "a snapshot",
    ),
    M(
        Leadership,
        "compacted",
        "progress.read_anew()",
        "pass",
        "a later snapshot takes the place of the former one",
        "test_a_piece_of_a_former_snapshot_is_not_sent",
    ),
    M(
        Leadership,
        "read",
        " or read.index != piece.snapshot.index",
        "",
        "a piece of a former snapshot is not sent",
        "test_a_piece_of_a_former_snapshot_is_not_sent",
    ),
    M(
        Raft,
        "_take_piece",
        "if body.is_last:",
        "if True:",
        "a snapshot counts when all of it is there",
        "test_a_follower_keeps_its_state_and_its_log_until_all_pieces_are_there",
    ),
    M(
        Raft,
        "_take_piece",
        "self._send_when_stored(sender, say.Staged",
        "self._send(sender, say.Staged",
        "an acknowledged piece is on the disk",
        "test_a_piece_is_on_the_disk_before_it_is_acknowledged",
    ),
    M(
        Raft,
        "_parts",
        "if piece is None else",
        "if True else",
        "a snapshot goes on after a cut",
        "test_a_snapshot_goes_on_after_a_cut",
    ),
    M(
        Raft,
        "_parts",
        "own, piece = self.log.snapshot.index",
        "own, piece = 0",
        "a follower keeps what its own snapshot has",
        "test_a_follower_that_was_away_keeps_what_its_own_snapshot_has",
    ),
    M(
        Leadership,
        "_take_lacking",
        "0 < body.staged <= self._log.snapshot.index",
        "body.staged",
        "pieces of a later snapshot are of no use",
        "test_a_leader_with_an_earlier_snapshot_sends_it_from_the_beginning",
    ),
    M(
        FollowerProgress,
        "next_piece",
        "if needed else now",
        "if False else now",
        "a leader rests between pieces while the log grows",
        "test_a_leader_rests_between_pieces_while_the_log_grows",
    ),
    M(
        FollowerProgress,
        "next_piece",
        " and needed < self._size",
        "",
        "a leader does not rest so long that the log grows as quickly as the copy",
        "test_a_leader_rests_only_while_the_copy_keeps_ahead_of_the_log",
    ),
    M(
        FollowerProgress,
        "next_piece",
        "min(needed, MOST_PIECE)",
        "0",
        "pieces grow with the log",
        "test_pieces_are_as_large_as_a_log_needs_that_grows_fast",
    ),
    M(
        Leadership,
        "deadline",
        "self._tell_by, pieces, ",
        "self._tell_by, ",
        "a leader that rests goes on",
        "test_a_leader_that_rests_goes_on_by_itself",
    ),
    M(
        FollowerProgress,
        "take_piece",
        " or self._sent is not None",
        "",
        "a piece is sent once in a contact",
        "test_a_piece_that_is_read_twice_is_sent_once",
    ),
    M(
        Raft,
        "_take_piece",
        " or former.snapshot.index > snapshot.index",
        "",
        "pieces of an earlier snapshot do not follow those of a later one",
        "test_a_piece_of_an_earlier_snapshot_breaks_the_protocol",
    ),
    M(
        Raft,
        "_drop_old_pieces",
        "self._staging.snapshot.index <= self.log.commit",
        "False",
        "pieces go when the log has passed them",
        "test_pieces_go_when_the_log_has_passed_them",
    ),
    M(
        Raft,
        "recover",
        "self._drop_pieces()",
        "pass",
        "pieces go when a store is recovered",
        "test_pieces_go_when_a_store_is_recovered",
    ),
    M(
        Raft,
        "compact",
        "not self.log.snapshot.index <= index <= self._applied",
        "index > self.log.last",
        "only applied entries go",
        "test_only_an_applied_state_becomes_a_snapshot",
    ),
    M(
        Storage,
        "drop",
        "envelope.receiver.router != router",
        "True",
        "what waits for the disk is lost with the contact",
        "test_a_piece_that_was_stored_in_an_earlier_contact_is_not_acknowledged",
    ),
    # digests
    M(
        Raft,
        "recover",
        "self._digests = Digests()",
        "pass",
        "digests go when a store is recovered",
        "test_a_recovered_store_forgets_the_digests_of_its_former_life",
    ),
    M(
        Raft,
        "_compare_digests",
        "self.set_aside(",
        "str(",
        "a replica with another state takes part no more",
        "test_a_replica_that_is_late_is_told_what_the_majority_has",
    ),
    M(
        Raft,
        "_compare_digests",
        "elif is_right:",
        "elif is_right is not False:",
        "a state of a minority is no snapshot",
        "test_an_operator_is_told_if_no_majority_has_the_same_state",
    ),
    M(
        Raft,
        "_count_digest",
        "self._alarm(",
        "str(",
        "an operator is told of states that differ",
        "test_an_operator_is_told_if_no_majority_has_the_same_state",
    ),
    M(
        Raft,
        "_count_digest",
        "[member] if was_right is not None else self.leadership.progress",
        "[] if was_right is not None else self.leadership.progress",
        "a late replica is told the right digest",
        "test_a_replica_that_is_late_is_told_what_the_majority_has",
    ),
    M(
        Raft,
        "_take_digest",
        "body.term != self.hard.term",
        "False",
        "a digest is of the term",
        "test_a_digest_of_another_term_counts_nothing",
    ),
    M(
        Digests,
        "count",
        "configuration.is_majority(",
        "bool(",
        "a majority has the right state",
        "test_an_operator_is_told_if_no_majority_has_the_same_state",
    ),
    M(
        Raft,
        "_take_greeting",
        "self.stores.is_replaced(known)",
        "False",
        "another store is another member, also in one contact",
        "test_a_leader_whose_followers_replace_their_stores_in_a_contact_resigns",
    ),
    M(
        Raft,
        "_acknowledge",
        "self._storage.supersede(say.Stored)",
        "pass",
        "acknowledgements leave in order",
        "test_an_acknowledgement_that_waits_for_the_disk_does_not_come_after_a_later_one",
    ),
]


SEARCHED = [
    M(FollowerProgress, "disconnected", "self.next = self._told = 0", "pass", "what a cut lost is sent again", "cuts"),
    M(Raft, "_take_lead", "self._acknowledge(sender)", "pass", "a log that agrees is acknowledged", "restarts"),
    M(Leadership, "decide", "self._log.stable", "self._log.last", "a leader counts its own disk", "slow disks"),
    M(Raft, "_take_vote", "self.hard.vote in (None, sender)", "True", "one vote in a term", "two candidates"),
    M(
        Raft,
        "_take_stand_now",
        "self._stand(now)",
        "(self._enter(self.hard.term + 1, self.me), self._follow_nobody(now), self._win(now))",
        "who is told to stand is elected",
        "a transfer",
    ),
    M(
        Leadership,
        "_next_configuration",
        " and progress.is_caught_up(self._log.last, now, self._limits.election)",
        " and False",
        "a learner becomes a voter",
        "a learner",
    ),
    M(Leadership, "_next_configuration", "[:1]:", "[:0]:", "members outside the ring leave", "voters change"),
    M(
        Leadership,
        "_next_configuration",
        "known.member != member",
        "False",
        "a replaced store leaves",
        "a store replaced",
    ),
    M(Configuration, "is_majority", "2 *", "4 *", "a third is no majority", "two stores lost"),
    M(Configuration, "is_majority", "2 *", "4 *", "one of three is no majority", "the first two stores lost"),
    M(Raft, "recover", " and self.log.last", "", "a store without an entry is not recovered", "recovered"),
    M(Raft, "_try_effect", "self._take_effect()", "pass", "what all have accepted takes effect", "a set begins"),
    M(Raft, "follow_ring", "self._greet()", "pass", "routers are told of a new file", "files that differ"),
    M(
        Raft,
        "_take_pre_vote",
        "self.leader is None and self.log",
        "self.log",
        "a leader in contact stays",
        "graphs of contacts, from all",
    ),
    # scopes of `make exhaustive`
    M(
        RaftLog,
        "is_no_newer_than",
        "(last_term, last) >= (self.last_term, self.last)",
        "True",
        "votes are for complete logs",
        "terms",
    ),
    M(Leadership, "decide", "self._log.stable", "self._log.last", "the leader's disk counts", "terms and slow disks"),
    M(
        Raft,
        "_acknowledge",
        "min(self.log.stable, self._matched)",
        "self._matched",
        "what is acknowledged is on the disk",
        "restarts and slow disks",
    ),
    M(
        Raft,
        "_take_vote",
        "self.hard.vote in (None, sender)",
        "True",
        "one vote, with a restart",
        "two candidates and a restart",
    ),
    M(
        Raft,
        "_take_vote",
        "self.hard.vote in (None, sender)",
        "True",
        "one vote, with a cut",
        "two candidates and a cut",
    ),
    M(
        Raft,
        "disconnect",
        "self.leadership.disconnect(member)",
        "pass",
        "a log is compared anew in each contact",
        "a transfer and a cut",
    ),
    M(Leadership, "_take_in", "self.connect(member)", "pass", "a new leader says so", "a transfer and a restart"),
    M(
        Leadership,
        "_next_configuration",
        " and progress.is_caught_up(self._log.last, now, self._limits.election)",
        " and False",
        "a learner becomes a voter, with a cut",
        "a learner and a cut",
    ),
    M(Leadership, "_take_in", "self.connect(member)", "pass", "a leader tells members", "a learner and an election"),
    M(
        KnownStores,
        "is_in_effect",
        "any(known.begun for known in same) or accepted.issuperset(configuration.voters)",
        "len(accepted) * 2 > len(configuration.voters)",
        "a life takes effect when all have it",
        "a set begins and loses two stores",
    ),
    M(
        Raft,
        "follow_ring",
        "self._greet()",
        "pass",
        "routers are told of a file",
        "files that differ and slow disks",
    ),
    M(
        Raft,
        "recover",
        "attrs.evolve(self.hard, life=self._new_life())",
        "self.hard",
        "a recovered set has a new life",
        "recovered while others return",
    ),
    M(
        Raft,
        "recover",
        "attrs.evolve(self.hard, life=self._new_life())",
        "self.hard",
        "each recovery has a new life",
        "recovered twice",
    ),
    M(
        Raft,
        "_take_greeting",
        "or known.life > self.hard.life",
        "or known.member > self.me",
        "the store of the later life stays, whichever router has it",
        "recovered twice, the other clock",
    ),
    M(
        Raft,
        "_take_greeting",
        "or known.life > self.hard.life",
        "",
        "a store of an earlier life is void",
        "recovered, and cuts",
    ),
    M(
        Raft,
        "recover",
        "self._stand(now)",
        "(self._stand(now), self._win(now))",
        "who recovers is elected by its own disk",
        "recovered, and a restart",
    ),
    M(
        FollowerProgress,
        "take_piece",
        "self._piece, self._sent, self.probe = None, None, piece.snapshot.index",
        "self._piece = self._sent = None",
        "entries come behind the snapshot",
        "a snapshot and slow disks",
    ),
    M(
        Raft,
        "_take_greeting",
        "self.leadership.connect(member)",
        "pass",
        "a leader says so in each contact",
        "graphs of contacts, from none",
    ),
    M(
        Raft,
        "_take_pre_vote",
        "self.leader is None and self.log",
        "self.log",
        "a leader of four voters stays",
        "graphs of contacts of four voters, from all",
    ),
    M(
        Raft,
        "_take_greeting",
        "self.leadership.connect(member)",
        "pass",
        "a leader of four voters says so",
        "graphs of contacts of four voters, from none",
    ),
    M(
        Raft,
        "_drop_old_pieces",
        "self._staging.snapshot.index <= self.log.commit",
        "False",
        "pieces go when the log has passed them, in any order",
        "a snapshot goes on",
    ),
]
"""The mutant that each scope of the search notices. The suite has those of quick scopes."""


SCENARIOS = {
    name: one
    for module in (test_traps, test_snapshots)
    for name, one in vars(module).items()
    if name.startswith("test_") and not signature(one).parameters
}
"""The scenarios without parameters, by name."""
SEARCHES = {scope.name: Search(scope).run for scope in QUICK + LONG}


Broken = tuple[type | ModuleType, str, str, str, Callable[[], None]]
"""A rule that a test breaks: the owner of the method, its name, a text of the method, the text that replaces it, and
the scene that then fails."""


def must_notice(broken: Broken) -> None:
    """Assert that the scene fails when the rule is broken."""
    owner, method, old, new, scene = broken
    with Mutant(owner, method, old, new, old, "").applied(), pytest.raises((Exception, pytest.fail.Exception)):
        scene()


def notices(mutant: Mutant, by: int | str) -> str:
    """The error of the walk, the scenario or the scope under the mutant; empty if it notices nothing."""
    with mutant.applied():
        try:
            if isinstance(by, str):
                SEARCHES[by]() if by in SEARCHES else SCENARIOS[by]()
            else:
                Walk(by).play()
        except Exception as noticed:
            return str(noticed) or type(noticed).__name__
        except pytest.fail.Exception as noticed:
            return str(noticed)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.topic.raft.mutants", description="look who notices a mutant")
    parser.add_argument("name", nargs="*", help="a part of a mutant's name; all if none is given")
    parser.add_argument("--seeds", type=int, default=300)
    arguments = parser.parse_args()
    missed = 0
    for mutant in MUTANTS + SEARCHED:
        if arguments.name and not any(name in mutant.name for name in arguments.name):
            continue
        for by in [mutant.by, *SCENARIOS, *range(arguments.seeds)]:
            if said := notices(mutant, by):
                print(f"{by!r:6} {mutant.name}: {said}", flush=True)
                break
        else:
            missed += 1
            print(f"       {mutant.name}: nobody notices", flush=True)
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
