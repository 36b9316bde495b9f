"""The oddities of clients. Each round draws some of them, as an oddity that is always present would hide others."""

from random import Random
from typing import Final

FEATURES: Final = {
    "widths": "every encoding of a value",
    "symbolic_inner": "symbols for the descriptors of states, termini, errors and sections",
    "symbolic_performatives": "the same of performatives",
    "offset": "an extended header",
    "odd_heartbeats": "empty frames on any channel",
    "cuts": "what is said is read in pieces, cut anywhere",
    "pipelined_open": "begin, attach and flow before the router's open",
    "small_frames": "max-frame-size from 512 on",
    "one_channel": "channel-max 0",
    "pipelined_channels": "a channel is begun on again before the router's end",
    "pipelined_handles": "a handle is attached again before the router's detach",
    "few_handles": "handle-max from 0 on",
    "wide_handles": "any handle that the router takes",
    "small_windows": "incoming windows from 0 on",
    "less_window": "an incoming window that is smaller than what may be under way",
    "huge_windows": "incoming windows of 2^31 and more",
    "wrap": "serial numbers that begin near 2^31 and 2^32",
    "much_credit": "credit up to 2^32 - 1",
    "less_credit": "credit that is taken back",
    "echo": "flows that ask for an answer, of sessions and of links",
    "echo_at_once": "the same of links whose attach is not answered yet",
    "drain": "with credit and without",
    "drain_undone": "a flow behind one that drains, before the answer",
    "sasl": "ANONYMOUS, and all behind it at once",
    "idle": "an idle time-out that the router has to heed",
    "anonymous": "senders to the anonymous terminus",
    "balanced": "addresses each of whose messages is for one subscriber",
    "dynamic": "dynamic sources, and senders to them",
    "patterns": "subscribers to patterns",
    "small_messages": "receivers with a small max-message-size",
    "twins": "two connections of one container",
    "names": "a link in either direction under one name",
    "odd_names": "names of links in any letters",
    "filters": "filters that mean nothing here, and selectors for which all holds",
    "default_outcomes": "a default outcome, and fewer outcomes, in the source that a receiver asks for",
    "dispositions_of_nothing": "dispositions that neither settle nor say an outcome, or say it again",
    "flow_fields": "fields of a flow that need not be there, or are left out",
    "capabilities": "capabilities, locales, properties and conditions that mean nothing here",
    "modes": "every combination of settle modes",
    "all_unsettled": "subscribers in sender settle mode unsettled",
    "transfer_modes": "a receiver settle mode of a transfer's own",
    "transfer_states": "a state of a transfer's own, and of what its sender has not settled",
    "termini": "all fields of sources and targets",
    "null_termini": "no terminus at the client's end",
    "max_message_size": "that of a receiver, from 2^63 on, or 0",
    "sections": "every section, every type",
    "ttl": "a time to live that may pass",
    "formats": "messages of other formats",
    "tags": "of 1 and of 32 bytes",
    "many_frames": "messages in many frames, some of them empty",
    "settled_late": "settled in the last frame only",
    "settled_first": "settled in the first of many frames, and left out in the others",
    "abort": "deliveries that are aborted",
    "outcome_rejected": "rejected, with an error and without",
    "outcome_released": "released",
    "outcome_modified": "modified, with all its fields",
    "outcome_received": "received, and an outcome later",
    "outcome_none": "settled without an outcome",
    "wide_ranges": "dispositions over what is settled already",
    "early_settle": "a publisher settles what has no outcome yet",
    "hasty_end": "end and close right behind what is said on a session, the begin too",
    "reattach": "detach and attach again on the same session, with a null map",
    "resume": "detach, end, close or lose the connection, and come back with a map",
    "resume_settled": "the same of subscribers in sender settle mode settled",
    "settled_again": "what is transferred again after that is settled by it",
    "aborted_again": "what is transferred again after that is aborted, at once or in its midst",
    "received_in_maps": "states in such a map where nothing is decided",
    "durable": "termini of every durability, and one that never expires",
    "deaf": "what the router says last is not read before the connection is lost",
    "steal": "a link is attached once more, on the same session or on another",
    "steal_unread": "the same while the session's window is closed",
}


class Draw:
    """The features of one client."""

    def __init__(self, rng: Random) -> None:
        share = rng.choice((0.1, 0.3, 0.6))
        self.names = frozenset(name for name in FEATURES if rng.random() < share)

    def has(self, name: str) -> bool:
        assert name in FEATURES, name
        return name in self.names
