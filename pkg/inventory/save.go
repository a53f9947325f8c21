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

	"github.com/cluster-version/cvo/pkg/api"
)

// Save makes the cluster hold the inventory. It sends one request for each shard that differs from what Load or an
// earlier Save knows to be there, and none if nothing changed. If it fails in between, what is there is readable, and
// the next Save writes the rest. Records that are too large to be real are left out and named in the error. The caller
// does not change inv meanwhile.
func (s *Store) Save(ctx context.Context, inv Inventory) error {
	if !s.loaded {
		_, err := s.Load(ctx)
		if _, damaged := errors.AsType[*DamagedError](err); err != nil && !damaged {
			return err
		}
	}
	of, err := shards(inv, s.of, s.limit)
	if err != nil {
		return fmt.Errorf("saving the inventory: %w", err)
	}
	if of != s.of {
		s.of, s.generation = of, s.generation+1
	}
	err = s.write(ctx, inv)
	if err == nil {
		err = s.removeOthers(ctx)
	}
	if err != nil {
		return fmt.Errorf("saving the inventory: %w", err)
	}
	return tooLarge(inv)
}

// shards returns how many shards an inventory takes that has been in so many: as many, unless one becomes too large, or
// half as many would be at most half full. limit is what a shard may weigh.
func shards(inv Inventory, of, limit int) (int, error) {
	weights := weigh(inv, of)
	for slices.Max(weights) > limit {
		if of *= 2; of > maxShards {
			return 0, fmt.Errorf("%d records do not fit into %d ConfigMaps", len(inv.Records), maxShards)
		}
		weights = weigh(inv, of)
	}
	for len(weights) > 1 {
		half := weights[:len(weights)/2]
		for i := range half {
			half[i] += weights[i+len(half)]
		}
		if slices.Max(half) > limit/2 {
			break
		}
		weights = half
	}
	return len(weights), nil
}

// weigh returns the weight of each shard.
func weigh(inv Inventory, of int) []int {
	weights := make([]int, of)
	for id, r := range inv.Records {
		if w := weight(&r); w <= maxRecord {
			weights[assign(id, of)] += w
		}
	}
	return weights
}

// tooLarge names the records that no shard takes.
func tooLarge(inv Inventory) error {
	var left []string
	for id, r := range inv.Records {
		if weight(&r) > maxRecord {
			left = append(left, fmt.Sprintf("%.200q", id))
		}
	}
	if len(left) == 0 {
		return nil
	}
	slices.Sort(left)
	return fmt.Errorf("saving the inventory: left out what would take more than %d bytes: %s", maxRecord, strings.Join(left, ", "))
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

func (f *fingerprint) add(seed maphash.Seed, r Record) {
	f.count++
	f.records += maphash.Comparable(seed, r)
}

// note remembers what a shard says in the cluster.
func (s *Store) note(h shard) {
	f := fingerprint{generation: h.Generation, of: h.Of}
	for _, r := range h.records {
		f.add(s.seed, r)
	}
	if h.Shard == 0 {
		f.head = head(h.Release, h.Digest, h.labels, h.notes)
	}
	s.written[h.Shard] = written{print: f, uid: h.uid}
}

// head puts what the first shard says beside its records into one string.
func head(release, digest string, labels, notes map[string]string) string {
	return strings.Join([]string{
		release, digest, labels[applySetIDLabel], notes[applySetToolingAnnotation],
		notes[applySetKindsAnnotation], notes[applySetNamespacesAnnotation],
	}, "\x00")
}

// write sends the shards that differ, the last one first. While the number of shards changes, a reader then finds every
// record at least once: new shards come before old ones lose records to them, and those that are one too many go after
// others have taken over their records.
func (s *Store) write(ctx context.Context, inv Inventory) error {
	p := s.prepare(inv)
	for i := s.of - 1; i >= 0; i-- {
		if !s.differs(p, i) {
			continue
		}
		if p.records == nil {
			p.records = s.pick(inv, p)
		}
		data, err := s.encoder.encode(p.headers[i], p.records[i])
		if err != nil {
			return err
		}
		object := applycorev1.ConfigMap(shardName(s.owner, i), s.namespace).
			WithLabels(map[string]string{api.InventoryLabel: s.owner}).
			WithAnnotations(map[string]string{descriptionAnnotation: description}).
			WithBinaryData(map[string][]byte{dataKey: data})
		if i == 0 {
			object.WithLabels(p.labels).WithAnnotations(p.notes)
		}
		replaced, err := s.apply(ctx, i, object, p.prints[i])
		if err != nil {
			return err
		}
		if replaced { // all are looked at again
			i = s.of
			p.records = nil
		}
	}
	return nil
}

// prepared is what the shards should be.
type prepared struct {
	headers       []header
	prints        []fingerprint
	labels, notes map[string]string // of the first
	records       [][]Record        // of those that differ; nil until one does
}

// prepare says what every shard should be, short of the bytes.
func (s *Store) prepare(inv Inventory) prepared {
	p := prepared{
		headers: make([]header, s.of),
		prints:  make([]fingerprint, s.of),
		labels:  map[string]string{applySetIDLabel: ApplySetID(s.namespace, s.owner)},
	}
	for i := range p.headers {
		p.headers[i] = header{Shard: i, Of: s.of, Generation: s.generation}
		p.prints[i] = fingerprint{generation: s.generation, of: s.of}
	}
	where := newScope(inv)
	for id, r := range inv.Records {
		if weight(&r) <= maxRecord {
			where.add(id)
			p.prints[assign(id, s.of)].add(s.seed, r)
		}
	}
	kinds, namespaces := where.sorted()
	p.notes = parentAnnotations(kinds, namespaces, s.namespace)
	p.headers[0].Release, p.headers[0].Digest = inv.Release, inv.Digest
	p.prints[0].head = head(inv.Release, inv.Digest, p.labels, p.notes)
	return p
}

func (s *Store) differs(p prepared, i int) bool {
	known, ok := s.written[i]
	return !ok || known.print != p.prints[i]
}

// pick returns the records of the shards that differ.
func (s *Store) pick(inv Inventory, p prepared) [][]Record {
	records := make([][]Record, s.of)
	for i := range records {
		if s.differs(p, i) {
			records[i] = make([]Record, 0, p.prints[i].count)
		}
	}
	for id, r := range inv.Records {
		if i := assign(id, s.of); records[i] != nil && weight(&r) <= maxRecord {
			records[i] = append(records[i], r)
		}
	}
	return records
}

// apply writes one shard. If the ConfigMap that was there before is gone, others may be too, and it forgets what is
// known of them; this is what replaced says.
func (s *Store) apply(
	ctx context.Context, i int, object *applycorev1.ConfigMapApplyConfiguration, now fingerprint,
) (replaced bool, err error) {
	before := s.written[i]
	delete(s.written, i) // a request that fails may have taken effect
	client := s.client.ConfigMaps(s.namespace)
	options := metav1.ApplyOptions{FieldManager: api.FieldManager, Force: true}
	answer, err := client.Apply(ctx, object, options)
	if apierrors.IsInvalid(err) {
		// Somebody marked it immutable, which cannot be taken back: only another object can be written.
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
	s.written[i] = written{print: now, uid: answer.UID}
	s.present[i] = true
	return replaced, nil
}

// removeOthers deletes the shards that are too many.
func (s *Store) removeOthers(ctx context.Context) error {
	for _, i := range slices.Sorted(maps.Keys(s.present)) {
		if i < s.of {
			continue
		}
		err := s.client.ConfigMaps(s.namespace).Delete(ctx, shardName(s.owner, i), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		delete(s.present, i)
		delete(s.written, i)
	}
	return nil
}
