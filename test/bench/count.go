package main

import (
	"strings"

	"github.com/cluster-version/cvo/test/env"
)

// operatorAgent is cvo's user agent. Some of its clients append to it.
const operatorAgent = "cluster-version-operator"

// countRequests counts the requests of each phase in the audit log by their start time.
func (o *operation) countRequests(phases []Phase) error {
	events, err := o.env.Audit()
	if err != nil {
		return err
	}
	changes := env.Changes(events)
	for i := range phases {
		p := &phases[i]
		p.Requests = map[string]map[string]int{}
		for _, e := range p.of(events) {
			if p.Requests[e.UserAgent] == nil {
				p.Requests[e.UserAgent] = map[string]int{}
			}
			p.Requests[e.UserAgent][e.Verb]++
			p.Failed += boolInt(e.Code >= 400)
			p.Writes += boolInt(mutating(e) && !background(e))
		}
		for _, e := range p.of(changes) {
			p.Changed += boolInt(!background(e))
		}
	}
	return nil
}

// of returns the requests of cvo in a phase.
func (p *Phase) of(events []env.AuditEvent) []env.AuditEvent {
	var list []env.AuditEvent
	for _, e := range events {
		if strings.HasPrefix(e.UserAgent, operatorAgent) && !e.Received.Before(p.start) && e.Received.Before(p.end) {
			list = append(list, e)
		}
	}
	return list
}

// mutating reports whether a request would change something, even if it is rejected.
func mutating(e env.AuditEvent) bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// background reports whether a request is independent of applying manifests: one for the Lease or for events.
func background(e env.AuditEvent) bool {
	return e.Object.Resource == "leases" || e.Object.Resource == "events"
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
