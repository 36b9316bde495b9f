"""Odd clients: all their frames are legal AMQP 1.0, but few are frames that a common client would send.

`codec` writes any encoding of a type, and reads; `performatives` has the fields of AMQP's composite types. A `client`
draws its next frame from all that the specification allows (`connection`, `attaching`), and checks its router's frames
against the specification (`session`, `links`). The `ledger` knows the published messages and their receivers. `rounds`
plays a few clients at the routers of a mesh. `wrong` clients make one mistake each. None of this shares code with the
engine: a mistake in shared code would stay unseen.

`features` names the oddities. A round draws some of them.
"""
