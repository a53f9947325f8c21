package nodesim_test

import (
	"container/heap"
	"time"
)

// clock is virtual time. It advances to the next event at once.
type clock struct {
	now    time.Time
	events events
}

type event struct {
	at      time.Time
	happens func()
}

// in makes an event happen after a time.
func (c *clock) in(d time.Duration, happens func()) {
	heap.Push(&c.events, event{c.now.Add(d), happens})
}

// run makes all events happen, in the order of their times.
func (c *clock) run() {
	for len(c.events) > 0 {
		e, _ := heap.Pop(&c.events).(event)
		c.now = e.at
		e.happens()
	}
}

// events implements heap.Interface.
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

func (e *events) Push(x any) {
	if next, ok := x.(event); ok {
		*e = append(*e, next)
	}
}

func (e *events) Pop() any {
	last := len(*e) - 1
	next := (*e)[last]
	*e = (*e)[:last]
	return next
}
