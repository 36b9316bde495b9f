#!/usr/bin/env escript
%% RabbitMQ's AMQP 1.0 client as its documentation teaches it: publisher or subscriber, see tests/interop/foreign.py.
-mode(compile).

main([Role, Router, Address, Count, Size, "first", "at-once"]) ->
    logger:set_primary_config(level, error),
    {ok, _} = application:ensure_all_started(amqp10_client),
    [Host, Port] = string:split(Router, ":"),
    {ok, Connection} = amqp10_client:open_connection(#{
        address => Host, port => list_to_integer(Port), sasl => anon,
        container_id => iolist_to_binary(["erlang-", Role, "-", os:getpid()])}),
    {ok, Session} = amqp10_client:begin_session_sync(Connection),
    Main = self(),
    spawn_link(fun() -> eof = io:get_line(""), Main ! finish end),
    Run = case Role of "publish" -> fun publish/4; "subscribe" -> fun subscribe/4 end,
    Run(Session, list_to_binary(Address), list_to_integer(Count), list_to_integer(Size)),
    ok = amqp10_client:close_connection(Connection),
    receive {amqp10_event, {connection, Connection, {closed, _}}} -> ok end.

tell(Event) -> tell(Event, []).
tell(Event, What) -> io:format("{\"event\": \"~s\"~s}~n", [Event, [io_lib:format(", \"~s\": ~w", [K, V]) || {K, V} <- What]]).

now_us() -> erlang:monotonic_time(microsecond).

publish(Session, Address, Total, Size) ->
    {ok, Link} = amqp10_client:attach_sender_link_sync(Session, <<"publish">>, Address, unsettled),
    receive {amqp10_event, {link, Link, credited}} -> tell("attached") end,
    pump(Link, Total, Size, 0, [], 0).

%% It takes no account of its credit: so many at once that there is always some.
pump(Link, Total, Size, Sent, Told, Refused) when Sent < Total, Sent - length(Told) - Refused < 500 ->
    Number = integer_to_binary(Sent),
    Body = <<Number/binary, " ", (binary:copy(<<".">>, Size - byte_size(Number) - 1))/binary>>,
    ok = amqp10_client:send_msg(Link, amqp10_msg:new(Number, Body, false)),
    pump(Link, Total, Size, Sent + 1, Told, Refused);
pump(Link, Total, Size, Sent, Told, Refused) ->
    receive
        {amqp10_disposition, {accepted, Tag}} ->
            length(Told) + 1 =:= Total andalso tell("complete"),
            pump(Link, Total, Size, Sent, [{binary_to_integer(Tag), now_us()} | Told], Refused);
        {amqp10_disposition, _} ->
            pump(Link, Total, Size, Sent, Told, Refused + 1);
        finish ->
            {Numbers, Times} = lists:unzip(lists:reverse(Told)),
            tell("done", [{numbers, Numbers}, {times, Times}, {refused, Refused}])
    end.

subscribe(Session, Address, Total, Size) ->
    {ok, Link} = amqp10_client:attach_receiver_link(Session, <<"subscribe">>, Address, unsettled),
    receive {amqp10_event, {link, Link, attached}} -> ok end,
    ok = amqp10_client:flow_link_credit(Link, 200, 100),
    tell("attached"),
    take(Link, Total, Size, [], 0).

take(Link, Total, Size, Given, Damaged) ->
    receive
        {amqp10_msg, Link, Message} ->
            Body = iolist_to_binary(amqp10_msg:body(Message)),
            [Number, _] = binary:split(Body, <<" ">>),
            Now = now_us(),
            ok = amqp10_client:accept_msg(Link, Message),
            length(Given) + 1 =:= Total andalso begin tell("received"), tell("complete") end,
            Bad = case byte_size(Body) of Size -> 0; _ -> 1 end,
            take(Link, Total, Size, [{binary_to_integer(Number), Now} | Given], Damaged + Bad);
        finish ->
            {Numbers, Times} = lists:unzip(lists:reverse(Given)),
            tell("done", [{numbers, Numbers}, {times, Times}, {damaged, Damaged}, {settled, 0}])
    end.
