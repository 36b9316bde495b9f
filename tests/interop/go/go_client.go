// Azure's go-amqp as its documentation teaches it: publisher or subscriber, see tests/interop/foreign.py. The library does
// not reconnect by itself, so the program does: it dials the next of its routers, attaches under the same names, and sends
// again what has no outcome.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

var (
	role, routers, address = os.Args[1], strings.Split(os.Args[2], ","), os.Args[3]
	total, size            = number(os.Args[4]), number(os.Args[5])
	numbers                = []int{}
	receiver               *amqp.Receiver
	refused, damaged       int
)

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func tell(what map[string]any) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

// Attach at one router after the other, until one answers.
func connect(attach func(*amqp.Session) error) *amqp.Conn {
	for at := 0; ; at++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		conn, err := amqp.Dial(ctx, "amqp://"+routers[at%len(routers)], &amqp.ConnOptions{ContainerID: "go-" + role})
		if err == nil {
			var session *amqp.Session
			if session, err = conn.NewSession(ctx, nil); err == nil {
				err = attach(session)
			}
			if err != nil {
				conn.Close()
			}
		}
		cancel()
		if err == nil {
			return conn
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func publish() *amqp.Conn {
	var sender *amqp.Sender
	attach := func(session *amqp.Session) (err error) {
		sender, err = session.NewSender(context.Background(), address, nil)
		return err
	}
	conn := connect(attach)
	tell(map[string]any{"event": "attached"})
	type sent struct {
		number  int
		receipt amqp.SendReceipt
	}
	todo, doubtful := make([]int, total), []sent{}
	for n := range todo {
		todo[n] = n
	}
	for len(todo) > 0 || len(doubtful) > 0 {
		var err error
		if len(todo) > 0 && len(doubtful) < 100 {
			body := []byte(fmt.Sprintf("%-*s", size, fmt.Sprint(todo[0], " ")))
			var receipt amqp.SendReceipt
			if receipt, err = sender.SendWithReceipt(context.Background(), amqp.NewMessage(body), nil); err == nil {
				doubtful = append(doubtful, sent{todo[0], receipt})
				todo = todo[1:]
			}
		} else {
			var state amqp.DeliveryState
			if state, err = doubtful[0].receipt.Wait(context.Background()); err == nil {
				if _, ok := state.(*amqp.StateAccepted); ok {
					numbers = append(numbers, doubtful[0].number)
				} else {
					refused++
				}
				doubtful = doubtful[1:]
			}
		}
		if err != nil {
			again := []int{}
			for _, each := range doubtful {
				again = append(again, each.number)
			}
			todo, doubtful = slices.Concat(again, todo), nil
			conn.Close()
			conn = connect(attach)
		}
	}
	tell(map[string]any{"event": "complete"})
	awaitEndOfInput()
	return conn
}

// At a topic the subscriber is durable: it misses nothing while it looks for another router. It consumes until its input
// ends, because a message without an outcome comes again.
func subscribe() *amqp.Conn {
	untilInputEnds, ended := context.WithCancel(context.Background())
	go func() {
		awaitEndOfInput()
		ended()
	}()
	options := &amqp.ReceiverOptions{Name: "durable", Credit: 100}
	if strings.HasPrefix(address, "topic/") {
		options.SourceDurability, options.SourceExpiryPolicy = amqp.DurabilityUnsettledState, amqp.ExpiryPolicyNever
	}
	attach := func(session *amqp.Session) (err error) {
		receiver, err = session.NewReceiver(context.Background(), address, options)
		return err
	}
	conn := connect(attach)
	tell(map[string]any{"event": "attached"})
	seen := map[int]bool{}
	for untilInputEnds.Err() == nil {
		message, err := receiver.Receive(untilInputEnds, nil)
		if err == nil {
			got := number(strings.Fields(string(message.GetData()))[0])
			if len(message.GetData()) != size {
				damaged++
			}
			err = receiver.AcceptMessage(context.Background(), message)
			numbers = append(numbers, got)
			if !seen[got] {
				seen[got] = true
				if len(seen) == total/3 || len(seen) == total*2/3 {
					tell(map[string]any{"event": "part"})
				}
				if len(seen) == total {
					tell(map[string]any{"event": "received"})
					tell(map[string]any{"event": "complete"})
				}
			}
		}
		if err != nil && untilInputEnds.Err() == nil {
			conn.Close()
			conn = connect(attach)
		}
	}
	return conn
}

func awaitEndOfInput() {
	io.Copy(io.Discard, os.Stdin)
}

func main() {
	play := map[string]func() *amqp.Conn{"publish": publish, "subscribe": subscribe}[role]
	conn := play()
	if receiver != nil {
		receiver.Close(context.Background()) // a durable subscriber ends with this
	}
	conn.Close()
	tell(map[string]any{"event": "done", "numbers": numbers, "refused": refused, "damaged": damaged})
}
