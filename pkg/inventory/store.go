package inventory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
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

	seed    maphash.Seed
	encoder encoder

	loaded         bool
	of, generation int
	written        map[int]written // what is there for certain
	others         map[int]bool    // shards that are there and may be damaged, outdated or too many
}

// written is what is known of a shard in the cluster.
type written struct {
	print fingerprint
	uid   types.UID
}

// fingerprint tells whether a shard has changed, without its bytes. It is of use only to the Store that made it.
type fingerprint struct {
	generation, of, count int
	// records is the sum of the hashes of the records, which is the same in any order.
	records uint64
	// head is what the first shard says beside its records.
	head string
}

// NewStore returns a store of the inventory of one owner, in a namespace. client may be read-only for a caller that
// only loads; loading takes the right to list ConfigMaps, saving that to list, patch, create and delete them.
func NewStore(client corev1client.ConfigMapsGetter, namespace, owner string) *Store {
	return &Store{client: client, namespace: namespace, owner: owner, seed: maphash.MakeSeed()}
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
	s.others = map[int]bool{}
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
			s.others[number] = true
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
	there := s.others
	for i := range shards[len(shards)-1].Of {
		if !there[i] {
			missing = append(missing, fmt.Sprintf("ConfigMap %s: it is missing", shardName(s.owner, i)))
		}
	}
	return missing
}

// note remembers what a shard says in the cluster.
func (s *Store) note(h shard) {
	print := fingerprint{generation: h.Generation, of: h.Of, count: len(h.records)}
	for i := range h.records {
		print.records += maphash.Comparable(s.seed, h.records[i])
	}
	if h.Shard == 0 {
		print.head = head(h.Release, h.Digest, h.labels, h.notes)
	}
	s.written[h.Shard] = written{print: print, uid: h.uid}
}

// head puts what the first shard says beside its records into one string.
func head(release, digest string, labels, notes map[string]string) string {
	return strings.Join([]string{
		release, digest, labels[applySetIDLabel], notes[applySetToolingAnnotation],
		notes[applySetKindsAnnotation], notes[applySetNamespacesAnnotation],
	}, "\x00")
}

// Save makes the cluster hold the inventory. It sends one request for each shard that differs from what Load or an
// earlier Save knows to be there, and none if nothing changed. If it fails in between, what is there is readable, and
// the next Save writes the rest. Records that are too large to be real are left out and named in the error.
func (s *Store) Save(ctx context.Context, inv Inventory) error {
	if !s.loaded {
		var damaged *DamagedError
		if _, err := s.Load(ctx); err != nil && !errors.As(err, &damaged) {
			return err
		}
	}
	l, err := s.layout(inv)
	if err != nil {
		return fmt.Errorf("saving the inventory: %w", err)
	}
	if l.of != s.of {
		s.of, s.generation = l.of, s.generation+1
	}
	if err := s.write(ctx, inv, l); err != nil {
		return fmt.Errorf("saving the inventory: %w", err)
	}
	return l.tooLarge
}

// layout is how an inventory is laid out in shards.
type layout struct {
	of       int
	tooLarge error
}

// layout keeps the number of shards, unless one becomes too large or all would be half full at most with half as many.
func (s *Store) layout(inv Inventory) (layout, error) {
	l := layout{of: s.of}
	var left []string
	weigh := func(of int) []int {
		weights := make([]int, of)
		for id, r := range inv.Records {
			if w := weight(&r); w <= maxRecord {
				weights[assign(id, of)] += w
			}
		}
		return weights
	}
	weights := weigh(l.of)
	for slices.Max(weights) > maxPlain {
		if l.of *= 2; l.of > maxShards {
			return l, fmt.Errorf("%d records do not fit into %d ConfigMaps", len(inv.Records), maxShards)
		}
		weights = weigh(l.of)
	}
	for l.of > 1 {
		half := weights[:l.of/2]
		for i := range half {
			half[i] += weights[i+len(half)]
		}
		if slices.Max(half) > maxPlain/2 {
			break
		}
		l.of, weights = len(half), half
	}
	for id, r := range inv.Records {
		if weight(&r) > maxRecord {
			left = append(left, fmt.Sprintf("%.200q", id))
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		l.tooLarge = fmt.Errorf("saving the inventory: left out what would take more than %d bytes: %s", maxRecord, strings.Join(left, ", "))
	}
	return l, nil
}

// write sends what differs. While the number of shards changes, a reader finds every record at least once: new shards
// come before old ones lose records to them, and shards go after others have taken over their records.
func (s *Store) write(ctx context.Context, inv Inventory, l layout) error {
	scope := newScope(inv)
	prints := make([]fingerprint, l.of)
	for i := range prints {
		prints[i] = fingerprint{generation: s.generation, of: l.of}
	}
	for id, r := range inv.Records {
		if weight(&r) > maxRecord {
			continue
		}
		scope.add(id)
		p := &prints[assign(id, l.of)]
		p.count++
		p.records += maphash.Comparable(s.seed, r)
	}
	kinds, namespaces := scope.sorted()
	labels := map[string]string{api.InventoryLabel: s.owner, applySetIDLabel: ApplySetID(s.namespace, s.owner)}
	notes := parentAnnotations(kinds, namespaces, s.namespace)
	prints[0].head = head(inv.Release, inv.Digest, labels, notes)

	differs := func(i int) bool { known, ok := s.written[i]; return !ok || known.print != prints[i] }
	for i := l.of - 1; i >= 0; i-- {
		if !differs(i) {
			continue
		}
		h := header{Shard: i, Of: l.of, Generation: s.generation}
		object := applycorev1.ConfigMap(shardName(s.owner, i), s.namespace).
			WithLabels(map[string]string{api.InventoryLabel: s.owner}).
			WithAnnotations(map[string]string{descriptionAnnotation: description})
		if i == 0 {
			h.Release, h.Digest = inv.Release, inv.Digest
			object.WithLabels(labels).WithAnnotations(notes)
		}
		data, err := s.encoder.encode(h, pick(inv, i, l.of, prints[i].count))
		if err != nil {
			return err
		}
		object.WithBinaryData(map[string][]byte{dataKey: data})
		replaced, err := s.apply(ctx, i, object, prints[i])
		if err != nil {
			return err
		}
		if replaced {
			i = l.of // all are looked at again
		}
	}
	for _, i := range slices.Sorted(maps.Keys(s.others)) {
		if i < l.of {
			continue
		}
		err := s.client.ConfigMaps(s.namespace).Delete(ctx, shardName(s.owner, i), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		delete(s.others, i)
		delete(s.written, i)
	}
	return nil
}

// pick returns the records of one shard.
func pick(inv Inventory, shard, of, count int) []Record {
	records := make([]Record, 0, count)
	for id, r := range inv.Records {
		if assign(id, of) == shard && weight(&r) <= maxRecord {
			records = append(records, r)
		}
	}
	return records
}

// apply writes one shard. If the ConfigMap that was there before is gone, others may be too, and it forgets what is known
// of them; this is what replaced says.
func (s *Store) apply(ctx context.Context, i int, object *applycorev1.ConfigMapApplyConfiguration, print fingerprint) (replaced bool, err error) {
	before := s.written[i]
	delete(s.written, i) // a request that fails may have taken effect
	client := s.client.ConfigMaps(s.namespace)
	options := metav1.ApplyOptions{FieldManager: api.FieldManager, Force: true}
	answer, err := client.Apply(ctx, object, options)
	if apierrors.IsInvalid(err) {
		// Somebody marked it immutable, and then nothing but the mark's object going takes that back.
		if err := client.Delete(ctx, *object.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		before.uid = ""
		answer, err = client.Apply(ctx, object, options)
	}
	switch {
	case apierrors.IsNotFound(err):
		clear(s.written) // all shards went with it
		return false, fmt.Errorf("namespace %s is gone, and what releases have applied is recorded there: create it again: %w", s.namespace, err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		clear(s.written)
		return false, fmt.Errorf("namespace %s is being deleted, and what releases have applied is recorded there: create it again when it is gone: %w", s.namespace, err)
	case err != nil:
		return false, err
	}
	replaced = before.uid != "" && before.uid != answer.UID
	if replaced {
		clear(s.written)
	}
	s.written[i] = written{print: print, uid: answer.UID}
	s.others[i] = true
	return replaced, nil
}
