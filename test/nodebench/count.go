//go:build linux

package main

import (
	"strings"

	"github.com/cluster-version/cvo/test/env"
)

// Requests are the stage's requests while all nodes get a config, without those for the Lease.
type Requests struct {
	// Writes is the number of writes of all objects, divided by that of nodes. Evictions and events do not count.
	Writes float64 `json:"writesPerNode"`
	// MostWrites is the maximum for one node: of its Node and its MachineConfigNode.
	MostWrites int `json:"mostWritesOfANode"`
	// Rejected is the number of other writes, which the API server rejected, mostly because of a conflict, divided by that of nodes.
	Rejected float64 `json:"rejectedWritesPerNode"`
	// Reads is the number of gets and lists, divided by that of nodes. It includes requests for the kinds that the API server serves.
	Reads float64 `json:"readsPerNode"`
	// Evictions is the number of accepted evictions, and Refused that of the others.
	Evictions int `json:"evictions"`
	Refused   int `json:"refusedEvictions"`
	Events    int `json:"events"`
	// ByKind counts all of these by verb and kind.
	ByKind map[string]int `json:"byKind"`
}

// of returns the stage's requests in a phase, without watches and those for the Lease.
func (p phase) of(events []env.AuditEvent) (list []env.AuditEvent) {
	for _, e := range events {
		isOwn := strings.HasPrefix(e.UserAgent, stageAgent) && !e.Received.Before(p.begun) && e.Received.Before(p.ended)
		if isOwn && e.Verb != "watch" && e.Object.Resource != "leases" {
			list = append(list, e)
		}
	}
	return list
}

// kindOf returns the process, the verb and the kind of a request.
func kindOf(e env.AuditEvent) string {
	process := "daemon"
	if strings.HasPrefix(e.UserAgent, controllerAgent) {
		process = "controller"
	}
	object := e.Object.Resource
	if object == "" {
		object = "discovery"
	}
	if e.Object.Subresource != "" {
		object += "/" + e.Object.Subresource
	}
	return process + " " + e.Verb + " " + object
}

// countIdle counts requests by kind.
func countIdle(events []env.AuditEvent, p phase) map[string]int {
	counts := map[string]int{}
	for _, e := range p.of(events) {
		counts[kindOf(e)]++
	}
	return counts
}

// countUpdate counts the requests of an update of so many nodes.
func countUpdate(events []env.AuditEvent, p phase, nodes int) Requests {
	r := Requests{ByKind: countIdle(events, p)}
	writes, rejected, reads := 0, 0, 0
	byNode := map[string]int{}
	for _, e := range p.of(events) {
		switch {
		case e.Verb == "get" || e.Verb == "list":
			reads++
		case e.Object.Resource == "events":
			r.Events++
		case e.Object.Subresource == "eviction" && e.Write():
			r.Evictions++
		case e.Object.Subresource == "eviction":
			r.Refused++
		case !e.Write():
			rejected++
		default:
			writes++
			if e.Object.Resource == "nodes" || e.Object.Resource == "machineconfignodes" {
				byNode[e.Object.Name]++
				r.MostWrites = max(r.MostWrites, byNode[e.Object.Name])
			}
		}
	}
	per := func(n int) float64 { return float64(n) / float64(nodes) }
	r.Writes, r.Rejected, r.Reads = per(writes), per(rejected), per(reads)
	return r
}
