package graph

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Limits of a response. The graph of a channel with all releases of several years needs a tenth of them.
const (
	maxBytes = 32 << 20
	// maxElement limits one node or one group of conditional edges. Decoded elements need many times as much memory.
	maxElement = 1 << 20
	maxNodes   = 20_000
	maxEdges   = 200_000
	maxKeys    = 1000
	// maxGroups limits the groups of conditional edges, maxConditional their edges in total, and maxRisks their risks in total.
	maxGroups      = 20_000
	maxConditional = 200_000
	maxRisks       = 50_000
)

// Parse reads a graph from JSON within limits. It ignores unknown fields.
func Parse(r io.Reader) (*Graph, error) {
	in := &bounded{inner: r}
	p := parser{in: in, json: json.NewDecoder(in)}
	if err := p.object(); err != nil {
		if in.broken != nil {
			return nil, &Error{Reason: ReasonResponseFailed, Err: fmt.Errorf("reading the response: %w", in.broken)}
		}
		return nil, invalid("reading the response: %w", err)
	}
	return &p.graph, nil
}

// parser reads elements one by one, so at most one element in memory is unchecked.
type parser struct {
	in    *bounded
	json  *json.Decoder
	graph Graph
	// conditional and risks are the totals of all groups.
	conditional, risks int
}

func (p *parser) object() error {
	if err := p.delimiter('{'); err != nil {
		return err
	}
	lists := map[string]func(json.RawMessage) error{"nodes": p.node, "edges": p.edge, "conditionalEdges": p.group}
	seen := map[string]bool{}
	for i := 0; p.more(); i++ {
		if i == maxKeys {
			return tooMany("keys", maxKeys)
		}
		key, err := p.json.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		read := lists[name]
		if read == nil {
			var ignored json.RawMessage
			if err := p.element(&ignored); err != nil {
				return err
			}
			continue
		}
		if seen[name] {
			return fmt.Errorf("%s is listed twice", name)
		}
		seen[name] = true
		if err := p.list(name, read); err != nil {
			return err
		}
	}
	if err := p.delimiter('}'); err != nil {
		return err
	}
	p.in.stopAt(p.json.InputOffset() + maxElement)
	if _, err := p.json.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more data follows the graph (%w)", errors.Join(err, errTrailing))
	}
	return nil
}

var errTrailing = errors.New("the response must be one JSON object")

// list reads the elements of a list. It treats null as empty.
func (p *parser) list(name string, read func(json.RawMessage) error) error {
	p.in.stopAt(p.json.InputOffset() + maxElement)
	switch start, err := p.json.Token(); {
	case err != nil:
		return err
	case start == nil:
		return nil
	case start != json.Delim('['):
		return fmt.Errorf("%s is not a list", name)
	}
	for i := 0; p.more(); i++ {
		var raw json.RawMessage
		if err := p.element(&raw); err != nil {
			return fmt.Errorf("%s[%d]: %w", name, i, err)
		}
		if err := read(raw); err != nil {
			return fmt.Errorf("%s[%d]: %w", name, i, err)
		}
	}
	return p.delimiter(']')
}

func (p *parser) more() bool {
	p.in.stopAt(p.json.InputOffset() + maxElement)
	return p.json.More()
}

func (p *parser) element(raw *json.RawMessage) error {
	p.in.stopAt(p.json.InputOffset() + maxElement)
	return p.json.Decode(raw)
}

func (p *parser) delimiter(want json.Delim) error {
	p.in.stopAt(p.json.InputOffset() + maxElement)
	switch got, err := p.json.Token(); {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("not a JSON object: %q is missing", want.String())
	}
	return nil
}

func (p *parser) node(raw json.RawMessage) error {
	if len(p.graph.Nodes) == maxNodes {
		return tooMany("nodes", maxNodes)
	}
	var node Node
	if err := json.Unmarshal(raw, &node); err != nil {
		return err
	}
	p.graph.Nodes = append(p.graph.Nodes, node)
	return nil
}

func (p *parser) edge(raw json.RawMessage) error {
	if len(p.graph.Edges) == maxEdges {
		return tooMany("edges", maxEdges)
	}
	var edge IndexEdge
	if err := json.Unmarshal(raw, &edge); err != nil {
		return err
	}
	p.graph.Edges = append(p.graph.Edges, edge)
	return nil
}

func (p *parser) group(raw json.RawMessage) error {
	if len(p.graph.ConditionalEdges) == maxGroups {
		return tooMany("groups of conditional edges", maxGroups)
	}
	var group ConditionalEdges
	if err := json.Unmarshal(raw, &group); err != nil {
		return err
	}
	if p.conditional += len(group.Edges); p.conditional > maxConditional {
		return tooMany("conditional edges", maxConditional)
	}
	if p.risks += len(group.Risks); p.risks > maxRisks {
		return tooMany("risks", maxRisks)
	}
	p.graph.ConditionalEdges = append(p.graph.ConditionalEdges, group)
	return nil
}

func tooMany(what string, limit int) error {
	return fmt.Errorf("more than %d %s", limit, what)
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *IndexEdge) UnmarshalJSON(data []byte) error {
	var ends []int
	if err := json.Unmarshal(data, &ends); err != nil {
		return err
	}
	if len(ends) != 2 {
		return fmt.Errorf("an edge needs two ends, not %d", len(ends))
	}
	e.From, e.To = ends[0], ends[1]
	return nil
}

// MarshalJSON implements json.Marshaler.
func (e IndexEdge) MarshalJSON() ([]byte, error) { return json.Marshal([]int{e.From, e.To}) }

// bounded limits the bytes of the whole response and of the current element.
type bounded struct {
	inner       io.Reader
	given, stop int64
	// broken is the error that interrupted the stream.
	broken error
}

func (b *bounded) stopAt(offset int64) { b.stop = offset }

// Read implements io.Reader.
func (b *bounded) Read(buf []byte) (int, error) {
	left := min(maxBytes, b.stop) - b.given
	if left <= 0 {
		if b.given >= maxBytes {
			return 0, fmt.Errorf("the response is longer than %d bytes", maxBytes)
		}
		return 0, fmt.Errorf("an element is longer than %d bytes", maxElement)
	}
	n, err := b.inner.Read(buf[:min(int64(len(buf)), left)])
	b.given += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		b.broken = err
	}
	return n, err
}
