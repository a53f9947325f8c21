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
	"k8s.io/apimachinery/pkg/util/validation/field"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// Save stores the inventory in the cluster. It sends one request for each shard that differs from the state after Load or an earlier Save,
// and none if nothing has changed. If it fails halfway, the stored inventory is readable, and the next Save writes the rest. It omits
// records that are too large for a real object and lists them in the error. The caller must not change inv during the call.
func (s *Store) Save(ctx context.Context, inv Inventory) error {
	s.using.Lock()
	defer s.using.Unlock()
	if !s.loaded {
		_, err := s.load(ctx)
		if _, damaged := errors.AsType[*DamagedError](err); err != nil && !damaged {
			return err
		}
	}
	of, err := shards(inv, s.shardCount, s.limit)
	if err != nil {
		return fmt.Errorf("saving the inventory: %w", err)
	}
	if of != s.shardCount {
		s.shardCount, s.generation = of, s.generation+1
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

// shards returns the new number of shards for an inventory with the given number. It stays the same unless a shard becomes too large, or
// half as many shards would be at most half full. limit is the maximum weight of a shard.
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

// tooLarge lists the records that do not fit into any shard.
func tooLarge(inv Inventory) error {
	var omitted []string
	for id, r := range inv.Records {
		if weight(&r) > maxRecord {
			omitted = append(omitted, fmt.Sprintf("%.200q", id))
		}
	}
	if len(omitted) == 0 {
		return nil
	}
	slices.Sort(omitted)
	return fmt.Errorf("saving the inventory: omitted records larger than %d bytes: %s", maxRecord, strings.Join(omitted, ", "))
}

// written is the known state of a shard in the cluster.
type written struct {
	print fingerprint
	uid   types.UID
}

// fingerprint identifies the content of a shard without its bytes. It is comparable only within one Store.
type fingerprint struct {
	generation, of, count int
	// records is the sum of the records' hashes, which does not depend on their order.
	records uint64
	// head is the content of the first shard without its records.
	head string
}

func (f *fingerprint) add(seed maphash.Seed, r Record) {
	f.count++
	f.records += maphash.Comparable(seed, r)
}

// recordShard stores the known content of a shard in the cluster.
func (s *Store) recordShard(h shard) {
	f := fingerprint{generation: h.Generation, of: h.Of}
	for _, r := range h.records {
		f.add(s.seed, r)
	}
	if h.Shard == 0 {
		f.head = headerLine(h.Release, h.Digest, h.labels, h.notes)
	}
	s.written[h.Shard] = written{print: f, uid: h.uid}
}

// headerLine joins the content of the first shard, without its records, into one string.
func headerLine(release, digest string, labels, notes map[string]string) string {
	return strings.Join([]string{
		release, digest, labels[applySetIDLabel], notes[applySetToolingAnnotation],
		notes[applySetKindsAnnotation], notes[applySetNamespacesAnnotation],
	}, "\x00")
}

// write sends the shards that differ, in reverse order. A reader therefore finds every record at least once while the number of shards
// changes. New shards are written before old ones lose records to them, and surplus shards are deleted after the others have received their
// records.
func (s *Store) write(ctx context.Context, inv Inventory) error {
	p := s.prepare(inv)
	for i := s.shardCount - 1; i >= 0; i-- {
		if !s.differs(p, i) {
			continue
		}
		if p.records == nil {
			p.records = s.recordsByShard(inv, p)
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
		if replaced { // check all shards again
			i = s.shardCount
			p.records = nil
		}
	}
	return nil
}

// prepared is the target state of the shards.
type prepared struct {
	headers       []header
	prints        []fingerprint
	labels, notes map[string]string // of the first shard
	records       [][]Record        // of the shards that differ; nil until one differs
}

// prepare returns the target state of every shard without the bytes.
func (s *Store) prepare(inv Inventory) prepared {
	p := prepared{
		headers: make([]header, s.shardCount),
		prints:  make([]fingerprint, s.shardCount),
		labels:  map[string]string{applySetIDLabel: ApplySetID(s.namespace, s.owner)},
	}
	for i := range p.headers {
		p.headers[i] = header{Shard: i, Of: s.shardCount, Generation: s.generation}
		p.prints[i] = fingerprint{generation: s.generation, of: s.shardCount}
	}
	where := newScope(inv)
	for id, r := range inv.Records {
		if weight(&r) <= maxRecord {
			where.add(id)
			p.prints[assign(id, s.shardCount)].add(s.seed, r)
		}
	}
	kinds, namespaces := where.sorted()
	p.notes = parentAnnotations(kinds, namespaces, s.namespace)
	p.headers[0].Release, p.headers[0].Digest = inv.Release, inv.Digest
	p.prints[0].head = headerLine(inv.Release, inv.Digest, p.labels, p.notes)
	return p
}

func (s *Store) differs(p prepared, i int) bool {
	known, ok := s.written[i]
	return !ok || known.print != p.prints[i]
}

// recordsByShard returns the records of the shards that differ.
func (s *Store) recordsByShard(inv Inventory, p prepared) [][]Record {
	records := make([][]Record, s.shardCount)
	for i := range records {
		if s.differs(p, i) {
			records[i] = make([]Record, 0, p.prints[i].count)
		}
	}
	for id, r := range inv.Records {
		if i := assign(id, s.shardCount); records[i] != nil && weight(&r) <= maxRecord {
			records[i] = append(records[i], r)
		}
	}
	return records
}

// apply writes one shard. It returns replaced if the ConfigMap was deleted in the meantime. Other shards may then be missing as well, so it
// forgets their known states.
func (s *Store) apply(
	ctx context.Context, i int, object *applycorev1.ConfigMapApplyConfiguration, now fingerprint,
) (replaced bool, err error) {
	before := s.written[i]
	delete(s.written, i) // a failed request may have taken effect
	client := s.client.ConfigMaps(s.namespace)
	options := metav1.ApplyOptions{FieldManager: api.FieldManager, Force: true}
	answer, err := client.Apply(ctx, object, options)
	if apierrors.IsInvalid(err) && apierrors.HasStatusCause(err, metav1.CauseType(field.ErrorTypeForbidden)) {
		// Another client marked the ConfigMap as immutable (an admission policy rejects without this cause), which cannot be reverted. It has to be replaced.
		if err := client.Delete(ctx, *object.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		before.uid = ""
		answer, err = client.Apply(ctx, object, options)
	}
	switch {
	case apierrors.IsNotFound(err):
		clear(s.written) // all shards were deleted with it
		return false, fmt.Errorf("namespace %s with the inventory is missing; create it: %w", s.namespace, err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		clear(s.written)
		return false, fmt.Errorf("namespace %s with the inventory is being deleted; create it once it is gone: %w", s.namespace, err)
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

// removeOthers deletes the surplus shards.
func (s *Store) removeOthers(ctx context.Context) error {
	for _, i := range slices.Sorted(maps.Keys(s.present)) {
		if i < s.shardCount {
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
