package inventory

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	// dataKey is the key of a shard's bytes in its ConfigMap.
	dataKey = "records.jsonl.gz"

	description                 = "The objects that releases have applied to this cluster, one per line. Written by the version operator; see 'cvo status --orphans'."
	descriptionAnnotation       = "kubernetes.io/description"
	pageSize              int64 = 16
)

// DamagedError lists the unreadable parts of a stored inventory. All other parts are valid. An object whose record is lost is recorded
// again when it is next applied. Records with impossible names are dropped because they would make every Save fail.
type DamagedError struct {
	// Shards contains the damaged parts, each with its error, sorted.
	Shards []string
}

func (e *DamagedError) Error() string {
	return "cannot read parts of the inventory: " + strings.Join(e.Shards, "; ")
}

// Store reads and writes the inventory of one owner. It remembers the state in the cluster and writes only changes. It is safe for
// concurrent use. Only one Store may write at a time; any number may read.
//
// The inventory is in ConfigMaps <owner>-inventory-<n>. A hash of an object's identity assigns the object's record to a ConfigMap. The
// number of ConfigMaps is a power of two. It changes only when one of them becomes too large, or the records of two fit well into one. So a
// change of one record changes one ConfigMap. The Store writes them by server-side apply, which creates missing fields and overwrites
// changes of other writers in one request.
//
// The first ConfigMap is the parent of an ApplySet. It lists the kinds and namespaces of the objects.
type Store struct {
	client           corev1client.ConfigMapsGetter
	namespace, owner string

	limit   int // maximum weight of a shard
	seed    maphash.Seed
	encoder encoder

	// using serializes Load and Save, and guards the encoder and the fields below.
	using  sync.Mutex
	loaded bool
	// shardCount and generation describe the current layout.
	shardCount, generation int
	// written contains the confirmed content of shards. present contains all existing shards, including damaged or outdated ones.
	written map[int]written
	present map[int]bool
}

// NewStore returns a store for the inventory of one owner in a namespace. A caller that only loads may pass a read-only client. Loading
// needs permission to list ConfigMaps; saving needs to list, patch, create and delete them.
func NewStore(client corev1client.ConfigMapsGetter, namespace, owner string) *Store {
	return &Store{client: client, namespace: namespace, owner: owner, limit: maxPlain, seed: maphash.MakeSeed()}
}

// shard is the content of one ConfigMap.
type shard struct {
	header
	records []Record
	// dropped describes the records that were omitted; empty if there were none.
	dropped string
	uid     types.UID
	labels  map[string]string
	notes   map[string]string // annotations
}

// Load reads the inventory. It returns an empty one if there is none. If the error is a *DamagedError, the returned inventory lacks the
// records of the shards in the error. After any other error, for example without a response from the API server, nothing is known.
func (s *Store) Load(ctx context.Context) (Inventory, error) {
	s.using.Lock()
	defer s.using.Unlock()
	return s.load(ctx)
}

// load is Load for callers that hold the lock.
func (s *Store) load(ctx context.Context) (Inventory, error) {
	shards, damaged, err := s.read(ctx)
	if err != nil {
		return Inventory{}, fmt.Errorf("reading the inventory: %w", err)
	}
	// The latest layout is sorted last, so its records replace those of earlier layouts.
	sorted.By(shards, func(a, b shard) int {
		if d := a.Generation - b.Generation; d != 0 {
			return d
		}
		if d := a.Of - b.Of; d != 0 {
			return d
		}
		return a.Shard - b.Shard
	})
	s.loaded, s.shardCount, s.generation, s.written = true, 1, 1, map[int]written{}
	current := len(shards)
	if len(shards) > 0 {
		last := shards[len(shards)-1].header
		s.shardCount, s.generation = last.Of, last.Generation
		current = slices.IndexFunc(shards, func(h shard) bool { return h.Generation == last.Generation && h.Of == last.Of })
	}
	switch complete := len(shards)-current == s.shardCount; {
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
			inv.Kinds, inv.Namespaces = parseKinds(h.notes[applySetKindsAnnotation]), parseNamespaces(h.notes[applySetNamespacesAnnotation])
		}
		if h.Generation == s.generation && h.Of == s.shardCount && h.dropped == "" { // the next Save rewrites the others without the dropped records
			s.recordShard(h)
		}
	}
	if len(damaged) > 0 {
		slices.Sort(damaged)
		return inv, &DamagedError{Shards: slices.Compact(damaged)}
	}
	return inv, nil
}

// read lists the shards in the cluster. It returns the readable ones and the errors of the others.
func (s *Store) read(ctx context.Context) (shards []shard, damaged []string, err error) {
	s.present = map[int]bool{}
	// A list shows one moment across all its pages, so no write of the owner is visible in only some of the shards.
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
				continue // not ours, despite its label
			}
			s.present[number] = true
			h, err := readShard(cm, number)
			if err != nil {
				damaged = append(damaged, fmt.Sprintf("ConfigMap %s: %v", cm.Name, err))
				continue
			}
			if h.dropped != "" {
				damaged = append(damaged, fmt.Sprintf("ConfigMap %s: %s", cm.Name, h.dropped))
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
		return shard{}, fmt.Errorf("key %s is missing", dataKey)
	}
	h, records, err := decode(data)
	if err != nil {
		return shard{}, err
	}
	if h.Shard != number {
		return shard{}, fmt.Errorf("contains shard %d", h.Shard)
	}
	records, dropped := dropImpossible(records)
	if h.unreadable != "" {
		dropped = strings.TrimSuffix("skipped "+h.unreadable+"; "+dropped, "; ")
	}
	return shard{header: h, records: records, dropped: dropped, uid: cm.UID, labels: cm.Labels, notes: cm.Annotations}, nil
}

// missing lists the shards that do not exist.
func (s *Store) missing(shards []shard) []string {
	var missing []string
	there := s.present
	for i := range shards[len(shards)-1].Of {
		if !there[i] {
			missing = append(missing, fmt.Sprintf("ConfigMap %s: missing", shardName(s.owner, i)))
		}
	}
	return missing
}
