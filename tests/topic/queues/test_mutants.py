"""Each rule of the sets broken on purpose, and the scenario that notices."""

from collections.abc import Callable
from functools import partial

import pytest

from tests.topic.queues import test_rows as rows
from tests.topic.queues import test_sets as scenes
from tests.topic.queues import test_state as lists
from tests.topic.raft.mutants import Mutant
from topic.queues.replica import SetReplica
from topic.queues.requests import Requests
from topic.queues.rows import StateRows
from topic.queues.sets import ReplicaSets
from topic.queues.state import SetState
from topic.raft.raft import Raft

Broken = tuple[Callable[[], None], type, str, str, str, str]
"""The scenario, and as of `Mutant`: class, method, text, other text, rule."""

BROKEN: list[Broken] = [
    (lists.test_a_declare_with_other_settings_names_the_difference,
     SetState, "_declare", "known.settings == operation.settings", "True", "one name has one choice of settings"),
    (lists.test_a_declare_that_is_decided_twice_declares_once,
     SetState, "_declare", "return Done(known.id, known.version)", "return Done(fresh, fresh)",
     "a declare declares once"),
    (partial(lists.test_an_operation_on_a_deleted_queue_does_not_touch_the_next_one_of_its_name, lists.LIFE),
     SetState, "_change", "known.id != operation.id", "False", "an id names one queue"),
    (lists.test_a_queue_is_configured_and_deleted_by_its_id,
     SetState, "_change", "self.rows.delete(_key(known.name))", "pass", "the rows are those of the queues"),
    (lists.test_a_change_of_settings_that_is_decided_twice_does_not_undo_another_one,
     SetState, "_configure", "known.version != operation.former", "False", "a change names what it replaces"),
    (lists.test_a_change_back_to_former_settings_is_another_version,
     SetState, "_configure", ", version=fresh", "", "each change makes a version"),
    (rows.test_a_row_is_not_another_one_with_the_same_bytes,
     StateRows, "read", "_digest(key, value)", "len(value)", "the digest is that of the rows"),
    (scenes.test_an_old_write_of_a_store_that_was_set_aside_confirms_nothing,
     SetReplica, "stored", "self._writes[0] is write", "True", "a write is of this store"),
    (scenes.test_a_recovered_set_refuses_the_stores_of_its_former_life,
     SetReplica, "_propose", "entry(self.raft.hard.life, data)", "entry(NO_LIFE, data)", "an id has the life"),
    (scenes.test_an_answer_to_an_earlier_process_of_a_router_is_not_given_to_the_next,
     SetReplica, "forget", "if asked[1] != router", "if True", "an answer is for the process that has asked"),
    (scenes.test_a_snapshot_stays_while_another_router_is_sent_it,
     SetReplica, "_compact", "if one <= index", "if one == index", "a snapshot has all changes up to its index"),
    (scenes.test_a_snapshot_writes_what_has_changed,
     SetReplica, "_write", "self._compacted, None", "None, None", "a snapshot has all changes up to its index"),
    (scenes.test_states_become_snapshots_and_go_to_who_lacks_them,
     SetReplica, "_compact", "if not index:", "if True:", "a log ends before its snapshot"),
    (scenes.test_states_become_snapshots_and_go_to_who_lacks_them,
     SetReplica, "_restore", "self._received.read(self.state.rows.messages)", "()", "a state is the leader's snapshot"),
    (scenes.test_a_replica_with_another_state_begins_anew,
     SetReplica, "_apply", "self.raft.digested(index, self.state.rows.digest)", "pass", "states are compared"),
    (scenes.test_a_replica_with_another_state_begins_anew,
     SetReplica, "_renew", "self.raft.connect(router, now)", "pass", "a replica that begins anew has its contacts"),
    (scenes.test_a_replica_that_is_about_to_begin_anew_hears_of_who_comes,
     Raft, "receive", "self.stores.learn(known)", "pass", "a replica that begins anew knows who has come meanwhile"),
    (scenes.test_a_replica_that_is_about_to_begin_anew_hears_of_who_comes,
     Raft, "connect", "self.stores.connect(", "self.why_aside or self.stores.connect(", "and who is in contact"),
    (scenes.test_a_set_begins_though_its_first_disk_hangs_while_contacts_come_and_go,
     Raft, "persisted", "self._go_on_beginning(known)", "pass", "a store is proposed to when it has been told"),
    (scenes.test_an_operator_begins_a_set_though_the_disk_hangs,
     Raft, "_propose_to", "or (self._begins_anew and known.life < self.hard.life)", "", "also in an operator's name"),
    (scenes.test_a_busy_leader_is_asked_again,
     Requests, "answer", "self._unsent[number] = None", "pass", "a busy leader is asked again"),
    (scenes.test_an_answer_of_a_former_leader_counts_nothing,
     Requests, "answer", "router != self.leader", "False", "an answer is of the leader that was asked"),
    (scenes.test_a_request_goes_to_the_next_leader_if_the_first_is_lost,
     Requests, "learn", "if router in (former, self.leader)", "if False", "a request follows the leader"),
    (scenes.test_without_a_majority_a_request_is_answered_when_its_time_is_over,
     Requests, "give_up", "request.until <= now", "False", "each request is answered"),
    (scenes.test_a_leader_that_lost_the_contact_alone_is_asked_again_in_the_next,
     ReplicaSets, "contact", "if name in self._leads", "if False", "a contact begins with who leads"),
    (scenes.test_every_router_knows_who_leads,
     ReplicaSets, "_spread_leadership", "in self._contacts", "in ()", "all routers are told who leads"),
    (scenes.test_who_leads_no_more_says_so_to_routers_without_a_replica,
     ReplicaSets, "_spread_leadership", "leads=False", "leads=True", "who leads no more says so"),
    (scenes.test_a_leader_refuses_a_name_that_its_map_gives_to_another_set,
     ReplicaSets, "_take_requests", "plan.name == name", "True", "a set has the names of its own"),
    (scenes.test_a_router_that_speaks_for_another_loses_its_contact,
     ReplicaSets, "receive", "message.sender.router != router", "False", "a router speaks for itself"),
]  # fmt: skip


@pytest.mark.parametrize(("scenario", "owner", "method", "old", "new", "rule"), BROKEN, ids=[one[-1] for one in BROKEN])
def test_a_rule_that_is_broken_is_noticed(
    scenario: Callable[[], None], owner: type, method: str, old: str, new: str, rule: str
) -> None:
    scenario()
    with (
        Mutant(owner, method, old, new, rule, "").applied(),
        pytest.raises((Exception, pytest.fail.Exception)),
    ):
        scenario()
