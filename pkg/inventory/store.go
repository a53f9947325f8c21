package inventory

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	// dataKey holds the bytes of a shard in its ConfigMap.
	dataKey = "records.jsonl.gz"

	description                 = "What releases have applied to this cluster, one line for each object. Written by the version operator; see 'cvo status --orphans'."
	descriptionAnnotation       = "kubernetes.io/description"
	pageSize              int64 = 16
)

// DamagedError tells which parts of a stored inventory could not be read. What could be read stands: objects whose
// records are lost are recorded again when they are next applied.
type DamagedError struct {
	// Shards are the parts, each with what is wrong with it, sorted.
	Shards []string
}

func (e *DamagedError) Error() string {
	return "parts of the inventory are lost: " + strings.Join(e.Shards, "; ")
}

// Store reads and writes the inventory of one owner. It remembers what is in the cluster, so that it writes only what
// changes. It is not for concurrent use, and only one Store at a time may write; any number may read meanwhile.
//
// The inventory is in ConfigMaps <owner>-inventory-<n>, each of which holds the records of the objects that a hash of
// their identity assigns to it. Their number is a power of two that changes only when the records of a ConfigMap
// become too many, or those of two fit well into one: one changed record is one changed ConfigMap. They are written by
// server-side apply, which creates what is missing and overwrites what somebody else wrote in the same request.
//
// The first is the parent of an ApplySet: it lists the kinds and namespaces of the objects.
type Store struct {
	client           corev1client.ConfigMapsGetter
	namespace, owner string

	limit   int // what a shard may weigh
	seed    maphash.Seed
	encoder encoder

	loaded bool
	// of and generation are those of the layout that is written.
	of, generation int
	// written is what is there for certain, present which shards are there at all, also damaged or outdated ones.
	written map[int]written
	present map[int]bool
}

// NewStore returns a store of the inventory of one owner, in a namespace. client may be read-only for a caller that
// only loads; loading takes the right to list ConfigMaps, saving that to list, patch, create and delete them.
func NewStore(client corev1client.ConfigMapsGetter, namespace, owner string) *Store {
	return &Store{client: client, namespace: namespace, owner: owner, limit: maxPlain, seed: maphash.MakeSeed()}
}

// shard is what was read of one ConfigMap.
type shard struct {
	header
	records []Record
	uid     types.UID
	labels  map[string]string
	notes   map[string]string // annotations
}

// Load reads the inventory; it is empty if there is none. If the error is a *DamagedError, the inventory is there
// without the records of the shards that it names. With any other error, such as that the API server does not answer,
// nothing is known.
func (s *Store) Load(ctx context.Context) (Inventory, error) {
	shards, damaged, err := s.read(ctx)
	if err != nil {
		return Inventory{}, fmt.Errorf("reading the inventory: %w", err)
	}
	// The layout that was written last comes last, and its records replace those of earlier ones.
	slices.SortFunc(shards, func(a, b shard) int {
		if d := a.Generation - b.Generation; d != 0 {
			return d
		}
		if d := a.Of - b.Of; d != 0 {
			return d
		}
		return a.Shard - b.Shard
	})
	s.loaded, s.of, s.generation, s.written = true, 1, 1, map[int]written{}
	current := len(shards)
	if len(shards) > 0 {
		last := shards[len(shards)-1].header
		s.of, s.generation = last.Of, last.Generation
		current = slices.IndexFunc(shards, func(h shard) bool { return h.Generation == last.Generation && h.Of == last.Of })
	}
	switch complete := len(shards)-current == s.of; {
	case complete:
		shards = shards[current:]
	case current == 0 && len(shards) > 0:
		damaged = append(damaged, s.missing(shards)...)
	}

	inv := Inventory{Records: map[manifest.ID]Record{}}
	for _, h := range shards {
		for _, r := range h.records {
			inv.Records[r.ID] = r
		}
		if h.Shard == 0 {
			inv.Release, inv.Digest = h.Release, h.Digest
			inv.Kinds, inv.Namespaces = parseKinds(h.notes[applySetKindsAnnotation]), splitList(h.notes[applySetNamespacesAnnotation])
		}
		if h.Generation == s.generation && h.Of == s.of {
			s.note(h)
		}
	}
	if len(damaged) > 0 {
		slices.Sort(damaged)
		return inv, &DamagedError{Shards: slices.Compact(damaged)}
	}
	return inv, nil
}

// read lists the shards in the cluster, those that can be read and what is wrong with the others.
func (s *Store) read(ctx context.Context) (shards []shard, damaged []string, err error) {
	s.present = map[int]bool{}
	// A list is of one moment, over all its pages: no write of the owner lies between two shards of it.
	options := metav1.ListOptions{LabelSelector: api.InventoryLabel + "=" + s.owner, Limit: pageSize}
	for {
		page, err := s.client.ConfigMaps(s.namespace).List(ctx, options)
		if err != nil {
			return nil, nil, err
		}
		for i := range page.Items {
			cm := &page.Items[i]
			number, ok := parseShardName(s.owner, cm.Name)
			if !ok {
				continue // it is none of ours, whatever its label says
			}
			s.present[number] = true
			h, err := readShard(cm, number)
			if err != nil {
				damaged = append(damaged, fmt.Sprintf("ConfigMap %s: %v", cm.Name, err))
				continue
			}
			shards = append(shards, h)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return shards, damaged, nil
		}
	}
}

func readShard(cm *corev1.ConfigMap, number int) (shard, error) {
	data, ok := cm.BinaryData[dataKey]
	if !ok {
		return shard{}, fmt.Errorf("it has no %s", dataKey)
	}
	h, records, err := decode(data)
	if err != nil {
		return shard{}, err
	}
	if h.Shard != number {
		return shard{}, fmt.Errorf("it holds shard %d", h.Shard)
	}
	return shard{header: h, records: records, uid: cm.UID, labels: cm.Labels, notes: cm.Annotations}, nil
}

// missing names the shards that are not there at all.
func (s *Store) missing(shards []shard) []string {
	var missing []string
	there := s.present
	for i := range shards[len(shards)-1].Of {
		if !there[i] {
			missing = append(missing, fmt.Sprintf("ConfigMap %s: it is missing", shardName(s.owner, i)))
		}
	}
	return missing
}
