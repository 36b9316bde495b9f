"""Odd clients: all that they say is AMQP 1.0, and little of it is what a client of any make would say.

`codec` writes any encoding of a type, and reads; `performatives` has the fields of AMQP's composite types. A `client`
draws what to say next from all that the specification lets it say (`connection`, `attaching`), and takes what its
router says to the word (`session`, `links`). The `ledger` knows what was published and who has to have it. `rounds`
plays a few of them at the routers of a mesh. `wrong` clients make one mistake each. None of it shares code with the
engine: a mistake that both made would not be seen.

`features` names what is odd. A round draws some of that.
"""
