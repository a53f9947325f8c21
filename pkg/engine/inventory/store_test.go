package inventory

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/env"
)

// controlPlane is the control plane of all tests in this package. Each test has its own namespace.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// wire counts the writes of a client and can make requests fail.
type wire struct {
	next http.RoundTripper

	mu     sync.Mutex
	writes []string
	// before and after, if set, are called for each write. Their error is the response, before the request is sent or after it has taken
	// effect.
	before, after func(*http.Request) error
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return w.next.RoundTrip(req)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.before != nil {
		if err := w.before(req); err != nil {
			return nil, err
		}
	}
	w.writes = append(w.writes, req.Method+" "+req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:])
	answer, err := w.next.RoundTrip(req)
	if err == nil && w.after != nil {
		if failed := w.after(req); failed != nil {
			_ = answer.Body.Close()
			return nil, failed
		}
	}
	return answer, err
}

// drain returns the sorted writes since its last call.
func (w *wire) drain() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := slices.Sorted(slices.Values(w.writes))
	w.writes = nil
	return taken
}

func connect(t testing.TB) (*kubernetes.Clientset, *wire) {
	t.Helper()
	config := controlPlane.For(t).Config("inventory")
	config.QPS = -1
	w := &wire{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { w.next = next; return w })
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return clients, w
}

// newStore returns a store in a new namespace for the test.
func newStore(t testing.TB) (*Store, *kubernetes.Clientset, *wire) {
	t.Helper()
	clients, w := connect(t)
	ns, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "inventory-"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.drain()
	return NewStore(clients.CoreV1(), ns.Name, "version"), clients, w
}

// newSmallStore is newStore with shards of about 60 records.
func newSmallStore(t testing.TB) (*Store, *kubernetes.Clientset, *wire) {
	t.Helper()
	s, clients, w := newStore(t)
	s.limit = 16 << 10
	return s, clients, w
}

// another returns a new store of the same inventory, without the first one's knowledge.
func another(s *Store) *Store {
	next := NewStore(s.client, s.namespace, s.owner)
	next.limit = s.limit
	return next
}

// load reads the inventory with a new store.
func load(t *testing.T, s *Store) Inventory {
	t.Helper()
	inv, err := another(s).Load(t.Context())
	require.NoError(t, err)
	return inv
}

func save(t *testing.T, s *Store, inv Inventory) {
	t.Helper()
	require.NoError(t, s.Save(t.Context(), inv))
}

func shardOf(t *testing.T, s *Store, n int) *corev1.ConfigMap {
	t.Helper()
	cm, err := s.client.ConfigMaps(s.namespace).Get(t.Context(), shardName(s.owner, n), metav1.GetOptions{})
	require.NoError(t, err)
	return cm
}

func count(t *testing.T, s *Store) int {
	t.Helper()
	list, err := s.client.ConfigMaps(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: api.InventoryLabel + "=version"})
	require.NoError(t, err)
	return len(list.Items)
}

// realLooking returns an inventory of n objects, similar to that of a real release.
func realLooking(n int) Inventory {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	kinds := []schema.GroupKind{
		{Kind: "ConfigMap"},
		{Kind: "Service"},
		{Kind: "ServiceAccount"},
		{Group: "apps", Kind: "Deployment"},
		{Group: "rbac.authorization.k8s.io", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"},
		{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"},
		{Group: "monitoring.coreos.com", Kind: "PrometheusRule"},
		{Group: "config.openshift.io", Kind: "ClusterOperator"},
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"},
	}
	words := []string{"cluster", "operator", "machine", "config", "network", "storage", "ingress", "monitoring", "image", "registry", "dns", "auth"}
	pick := func() string { return words[random.IntN(len(words))] }
	inv := Inventory{Release: "4.23.0", Digest: "sha256:" + strings.Repeat("ab", 32), Records: map[manifest.ID]Record{}}
	for i := range n {
		kind := kinds[random.IntN(len(kinds))]
		id := manifest.ID{Group: kind.Group, Kind: kind.Kind, Name: fmt.Sprintf("%s-%s-%d", pick(), pick(), i)}
		if !strings.HasPrefix(kind.Kind, "Cluster") && !strings.HasPrefix(kind.Kind, "Custom") {
			id.Namespace = "openshift-" + pick() + "-" + pick()
		}
		inv.Records[id] = Record{
			ID: id, Version: "v1", Content: Content(randomHash(random)), Fields: randomHash(random), Release: "4.23.0", Reached: true,
		}
	}
	return inv
}

func randomHash(random *rand.Rand) ownership.Hash {
	var h ownership.Hash
	for i := range h {
		h[i] = byte(random.Uint32())
	}
	return h
}

// withScope returns the inventory as it is read back, with the kinds and namespaces of its records.
func withScope(inv Inventory, own string) Inventory {
	s := newScope(inv)
	for id := range inv.Records {
		s.add(id)
	}
	delete(s.namespaces, own)
	inv.Kinds, inv.Namespaces = s.sorted()
	return inv
}

func TestStoredInventoryReadsBackEqual(t *testing.T) {
	s, _, w := newStore(t)
	inv, err := s.Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Inventory{Records: map[manifest.ID]Record{}}, inv, "there is no inventory yet")

	inv = realLooking(1000)
	save(t, s, inv)
	assert.Equal(t, []string{"PATCH version-inventory-0"}, w.drain())
	assert.Equal(t, withScope(inv, s.namespace), load(t, s))

	save(t, s, inv)
	other := another(s)
	loaded, err := other.Load(t.Context())
	require.NoError(t, err)
	save(t, other, loaded)
	save(t, another(s), inv) // loads first
	assert.Empty(t, w.drain(), "nothing changed")
}

func TestStoreWritesOnlyChangedShards(t *testing.T) {
	s, _, w := newSmallStore(t)
	inv := realLooking(350)
	save(t, s, inv)
	shards := count(t, s)
	require.Len(t, w.drain(), shards)
	require.Greater(t, shards, 4)

	for _, id := range slices.SortedFunc(maps.Keys(inv.Records), Compare)[:5] {
		r := inv.Records[id]
		r.Reached, r.Release = false, "4.24.0"
		inv = inv.With(r)
		save(t, s, inv)
		assert.Equal(t, []string{"PATCH " + shardName("version", assign(id, shards))}, w.drain())
		assert.Equal(t, r, load(t, s).Records[id])

		inv = inv.Forget(id)
		save(t, s, inv)
		assert.Equal(t, []string{"PATCH " + shardName("version", assign(id, shards))}, w.drain())
		assert.NotContains(t, load(t, s).Records, id)
	}
	inv.Release = "4.24.0"
	save(t, s, inv)
	assert.Equal(t, []string{"PATCH version-inventory-0"}, w.drain())
}

func TestStoreAdjustsTheNumberOfShards(t *testing.T) {
	s, _, w := newSmallStore(t)
	small, large := realLooking(20), realLooking(220)
	save(t, s, small)
	assert.Equal(t, 1, count(t, s))
	save(t, s, large)
	assert.Equal(t, withScope(large, s.namespace), load(t, s))
	grown := count(t, s)
	assert.Greater(t, grown, 1)
	save(t, s, small)
	assert.Equal(t, withScope(small, s.namespace), load(t, s))
	assert.Equal(t, 1, count(t, s))
	w.drain()

	// Near the size for a second shard, the number stays the same.
	n := 20
	for s.shardCount == 1 {
		n += 5
		save(t, s, realLooking(n))
	}
	w.drain()
	for range 3 {
		save(t, s, realLooking(n-6))
		save(t, s, realLooking(n))
	}
	assert.Equal(t, 2, count(t, s))
	assert.NotContains(t, strings.Join(w.drain(), " "), "DELETE")
}

// TestInterruptedSaveLosesNoRecord interrupts a writer between any two requests. The stored inventory always has every record.
func TestInterruptedSaveLosesNoRecord(t *testing.T) {
	small, large := realLooking(20), realLooking(220)
	stopped := errors.New("stopped")
	for _, tt := range []struct {
		name     string
		from, to Inventory
	}{
		{"it grows", small, large},
		{"it shrinks", large, small},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _, w := newSmallStore(t)
			for stop := 0; ; stop++ {
				save(t, s, tt.from)
				w.drain()
				left := stop
				w.before = func(*http.Request) error {
					if left--; left < 0 {
						return stopped
					}
					return nil
				}
				writer := another(s)
				err := writer.Save(t.Context(), tt.to)
				w.before = nil
				if err == nil {
					require.Greater(t, stop, 2)
					break
				}
				require.ErrorIs(t, err, stopped)
				seen := load(t, s)
				for id := range tt.from.Records {
					if _, ok := tt.to.Records[id]; ok {
						require.Contains(t, seen.Records, id, "after %d requests", stop)
					}
				}
				if stop >= writer.shardCount { // only surplus shards remain to be deleted
					require.Equal(t, withScope(tt.to, s.namespace), seen, "after %d requests", stop)
				}
				// Either the same process continues or a new one starts.
				if stop%2 == 1 {
					writer = another(s)
				}
				save(t, writer, tt.to)
				require.Equal(t, withScope(tt.to, s.namespace), load(t, s), "after %d requests", stop)
				s = another(s)
			}
		})
	}
}

// TestSaveRepeatsAWriteWithoutResponse loses the response to a write. The next Save must not treat the shard as unchanged.
func TestSaveRepeatsAWriteWithoutResponse(t *testing.T) {
	s, _, w := newStore(t)
	old := realLooking(10)
	save(t, s, old)
	lost := errors.New("connection lost")
	w.after = func(*http.Request) error { return lost }
	require.ErrorIs(t, s.Save(t.Context(), realLooking(20)), lost)
	w.after = nil
	save(t, s, old)
	assert.Equal(t, withScope(old, s.namespace), load(t, s))
}

//threat:inventory-damaged-forged
func TestDamagedShardsAreSkipped(t *testing.T) {
	compress := func(text string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return b.Bytes()
	}
	const head = `{"format":1,"shard":1,"of":2,"generation":2}` + "\n"
	for _, tt := range []struct {
		name   string
		damage func(cm *corev1.ConfigMap)
		want   string
	}{
		{"it is not gzip", func(cm *corev1.ConfigMap) { cm.BinaryData[dataKey] = []byte("hello") }, "uncompressing"},
		{"it is cut off", func(cm *corev1.ConfigMap) { cm.BinaryData[dataKey] = cm.BinaryData[dataKey][:100] }, "uncompressing: unexpected EOF"},
		{"it has a flipped bit", func(cm *corev1.ConfigMap) { cm.BinaryData[dataKey][500] ^= 4 }, "uncompressing"},
		{"it has no data", func(cm *corev1.ConfigMap) { cm.BinaryData = nil }, "key records.jsonl.gz is missing"},
		{"it has a later format", func(cm *corev1.ConfigMap) {
			cm.BinaryData[dataKey] = compress(`{"format":2,"shard":1,"of":2,"generation":1}`)
		}, "format 2 is not supported, only 1"},
		{"it is a decompression bomb", func(cm *corev1.ConfigMap) {
			cm.BinaryData[dataKey] = compress(head + strings.Repeat(" ", 16<<20))
		}, "more than 2097152 bytes when uncompressed"},
		{"it is another shard", func(cm *corev1.ConfigMap) {
			cm.BinaryData[dataKey] = compress(`{"format":1,"shard":0,"of":2,"generation":1}`)
		}, "contains shard 0"},
		{"it has an inconsistent first line", func(cm *corev1.ConfigMap) {
			cm.BinaryData[dataKey] = compress(`{"format":1,"shard":1,"of":3,"generation":1}`)
		}, "inconsistent first line"},
		{"it has an invalid line", func(cm *corev1.ConfigMap) { cm.BinaryData[dataKey] = compress(head + "[]\n") }, "skipped line 2"},
		{"it has a record without an object", func(cm *corev1.ConfigMap) { cm.BinaryData[dataKey] = compress(head + "{}\n") }, "skipped line 2: record without kind or name"},
		{"it is missing", nil, "missing"},
	} {
		t.Run("it skips a shard if "+tt.name, func(t *testing.T) {
			s, clients, w := newSmallStore(t)
			inv := realLooking(80)
			save(t, s, inv)
			shards := count(t, s)
			maps := clients.CoreV1().ConfigMaps(s.namespace)
			if tt.damage == nil {
				require.NoError(t, maps.Delete(t.Context(), shardName("version", 1), metav1.DeleteOptions{}))
			} else {
				cm := shardOf(t, s, 1)
				tt.damage(cm)
				_, err := maps.Update(t.Context(), cm, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			w.drain()

			later := another(s)
			left, err := later.Load(t.Context())
			var damaged *DamagedError
			require.ErrorAs(t, err, &damaged)
			require.Len(t, damaged.Shards, 1)
			require.ErrorContains(t, err, "ConfigMap version-inventory-1: "+tt.want)
			assert.Equal(t, inv.Release, left.Release)
			for id := range inv.Records {
				_, ok := left.Records[id]
				require.Equal(t, assign(id, shards) != 1, ok, "%s", id)
			}

			save(t, later, left)
			assert.Equal(t, []string{"PATCH version-inventory-1"}, w.drain(), "the next save repairs it")
			assert.Equal(t, left, load(t, s))
		})
	}
}

// TestRecordsNextToADamagedLineAreKept inserts invalid lines between the records of a shard.
//
//threat:inventory-damaged-forged
func TestRecordsNextToADamagedLineAreKept(t *testing.T) {
	s, _, w := newStore(t)
	inv := realLooking(3)
	save(t, s, inv)
	cm := shardOf(t, s, 0)
	plain, err := gzip.NewReader(bytes.NewReader(cm.BinaryData[dataKey]))
	require.NoError(t, err)
	text, err := io.ReadAll(plain)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	require.Greater(t, len(lines), 4)
	var damaged bytes.Buffer
	z := gzip.NewWriter(&damaged)
	_, err = z.Write([]byte(strings.Join(slices.Insert(lines, 2, "{\"garbage\n", "{}\n"), "") + "\x00"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	cm.BinaryData[dataKey] = damaged.Bytes()
	_, err = s.client.ConfigMaps(s.namespace).Update(t.Context(), cm, metav1.UpdateOptions{})
	require.NoError(t, err)

	next := another(s)
	loaded, err := next.Load(t.Context())
	require.ErrorContains(t, err, "ConfigMap version-inventory-0: skipped 3 lines, starting with line 3: ")
	assert.Equal(t, inv.Records, loaded.Records)
	w.drain()
	save(t, next, loaded)
	assert.Equal(t, []string{"PATCH version-inventory-0"}, w.drain(), "the next save removes the lines")
	assert.Equal(t, inv.Records, load(t, s).Records)
}

// TestStoreDropsRecordsThatNoAPIServerAccepts lets another writer add records whose identity makes the API server reject the annotations of
// the first ConfigMap.
//
//threat:inventory-record-makes
func TestStoreDropsRecordsThatNoAPIServerAccepts(t *testing.T) {
	good := manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "x", Name: "y"}
	for name, edit := range map[string]func(id *manifest.ID){
		"a control character in the group":     func(id *manifest.ID) { id.Group = "apps\x7f" },
		"a control character in the kind":      func(id *manifest.ID) { id.Kind = "Deploy\u0085ment" },
		"a control character in the namespace": func(id *manifest.ID) { id.Namespace = "x\x7f" },
		"a control character in the name":      func(id *manifest.ID) { id.Name = "y\x1b" },
		"a line break in the kind":             func(id *manifest.ID) { id.Kind = "Deployment\nx" },
		"a path as the name":                   func(id *manifest.ID) { id.Name = "../y" },
		"capitals in the namespace":            func(id *manifest.ID) { id.Namespace = "X" },
		"a noncharacter in the namespace":      func(id *manifest.ID) { id.Namespace = "x\uffff" },
	} {
		t.Run("it drops "+name, func(t *testing.T) {
			t.Parallel()
			s, _, w := newStore(t)
			inv := realLooking(3)
			save(t, s, inv)
			bad := good
			edit(&bad)
			var e encoder
			data, err := e.encode(header{Of: 1, Generation: 1}, []Record{{ID: bad, Version: "v1"}, {ID: good, Version: "v1"}})
			require.NoError(t, err)
			cm := shardOf(t, s, 0)
			cm.BinaryData[dataKey] = data
			_, err = s.client.ConfigMaps(s.namespace).Update(t.Context(), cm, metav1.UpdateOptions{})
			require.NoError(t, err)

			next := another(s)
			loaded, err := next.Load(t.Context())
			_, damaged := errors.AsType[*DamagedError](err)
			require.True(t, damaged, "%v", err)
			require.ErrorContains(t, err, "dropped 1 of 2 records because no API server accepts their objects")
			assert.Contains(t, loaded.Records, good)
			assert.NotContains(t, loaded.Records, bad)
			w.drain()
			save(t, next, loaded)
			assert.Equal(t, []string{"PATCH version-inventory-0"}, w.drain(), "the next save removes the dropped record")
			assert.Equal(t, loaded.Records, load(t, s).Records)
		})
	}
}

func TestStoreOverwritesForeignChanges(t *testing.T) {
	s, clients, w := newStore(t)
	inv := realLooking(20)
	save(t, s, inv)
	client := clients.CoreV1().ConfigMaps(s.namespace)
	for _, tt := range []struct {
		name string
		edit func(t *testing.T)
	}{
		{"it repairs an overwritten ConfigMap", func(t *testing.T) {
			cm := shardOf(t, s, 0)
			cm.BinaryData[dataKey] = []byte("x")
			cm.Annotations[applySetKindsAnnotation] = "x"
			cm.Labels[applySetIDLabel] = "x"
			_, err := client.Update(t.Context(), cm, metav1.UpdateOptions{FieldManager: "somebody"})
			require.NoError(t, err)
		}},
		{"it replaces an immutable ConfigMap", func(t *testing.T) {
			cm := shardOf(t, s, 0)
			immutable := true
			cm.Immutable = &immutable
			_, err := client.Update(t.Context(), cm, metav1.UpdateOptions{FieldManager: "somebody"})
			require.NoError(t, err)
		}},
		{"it recreates a deleted ConfigMap", func(t *testing.T) {
			require.NoError(t, client.Delete(t.Context(), "version-inventory-0", metav1.DeleteOptions{}))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.edit(t)
			r := inv.Records[slices.MinFunc(slices.Collect(maps.Keys(inv.Records)), Compare)]
			r.Reached = !r.Reached
			inv = inv.With(r)
			save(t, s, inv)
			assert.Equal(t, withScope(inv, s.namespace), load(t, s))
			assert.Equal(t, ApplySetID(s.namespace, "version"), shardOf(t, s, 0).Labels[applySetIDLabel])
		})
	}
	w.drain()
}

// TestStoreRewritesReplacedConfigMaps replaces one ConfigMap. The next Save writes all of them, even those without changes.
func TestStoreRewritesReplacedConfigMaps(t *testing.T) {
	s, clients, _ := newSmallStore(t)
	inv := realLooking(350)
	save(t, s, inv)
	require.NoError(t, clients.CoreV1().ConfigMaps(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	inv.Release = "4.24.0"
	save(t, s, inv)
	assert.Equal(t, withScope(inv, s.namespace), load(t, s))
}

func TestStoreReportsAMissingNamespace(t *testing.T) {
	clients, _ := connect(t)
	s := NewStore(clients.CoreV1(), "nowhere", "version")
	inv, err := s.Load(t.Context())
	require.NoError(t, err)
	assert.Empty(t, inv.Records)
	err = s.Save(t.Context(), realLooking(1))
	require.ErrorContains(t, err, "saving the inventory: namespace nowhere with the inventory is missing")
	assert.True(t, apierrors.IsNotFound(err))

	s, _, _ = newStore(t)
	save(t, s, realLooking(1))
	require.NoError(t, clients.CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{}))
	require.NoError(t, s.client.ConfigMaps(s.namespace).Delete(t.Context(), "version-inventory-0", metav1.DeleteOptions{}))
	require.ErrorContains(t, s.Save(t.Context(), realLooking(2)), "is being deleted")
}

func TestStoreReturnsErrorsOfTheServer(t *testing.T) {
	s, clients, _ := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Load(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.Save(ctx, realLooking(1)), context.Canceled, "a save reads the existing shards first")

	id := manifest.ID{Kind: "ConfigMap", Name: strings.Repeat("a", maxRecord)}
	inv := realLooking(3)
	err = s.Save(t.Context(), inv.With(Record{ID: id}))
	require.ErrorContains(t, err, `omitted records larger than 16384 bytes: "ConfigMap aaa`)
	assert.Less(t, len(err.Error()), 500)
	assert.Equal(t, withScope(inv, s.namespace), load(t, s), "the other records are saved")

	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "version-inventory-00", Labels: map[string]string{api.InventoryLabel: "version"},
	}}
	_, err = clients.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), foreign, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, withScope(inv, s.namespace), load(t, s), "a ConfigMap with our label but a foreign name is ignored")
}

func TestStoreDescribesTheApplySet(t *testing.T) {
	s, _, _ := newStore(t)
	objects := named(
		manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "b", Name: "x"},
		manifest.ID{Kind: "ConfigMap", Namespace: s.namespace, Name: "x"},
		manifest.ID{Kind: "Namespace", Name: "a"},
	)
	orphan := Record{ID: manifest.ID{Group: "batch", Kind: "CronJob", Namespace: "a", Name: "x"}, Version: "v1", Release: "1.0.0"}
	save(t, s, Plan(Inventory{Release: "1.0.0"}.With(orphan), objects, nil, "1.1.0"))
	parent := shardOf(t, s, 0)
	assert.Equal(t, map[string]string{
		api.InventoryLabel: "version", "applyset.kubernetes.io/id": ApplySetID(s.namespace, "version"),
	}, parent.Labels)
	assert.Equal(t, map[string]string{
		"kubernetes.io/description":                    description,
		"applyset.kubernetes.io/tooling":               "cvo/v1",
		"applyset.kubernetes.io/contains-group-kinds":  "ConfigMap,CronJob.batch,Deployment.apps,Namespace",
		"applyset.kubernetes.io/additional-namespaces": "a,b",
	}, parent.Annotations)
	loaded := load(t, s)
	assert.Equal(t, "1.1.0", loaded.Release)
	assert.Equal(t, "1.1.0", loaded.Records[orphan.ID].Dropped)

	many := Inventory{}
	for i := range 50_000 {
		many.Namespaces = append(many.Namespaces, fmt.Sprintf("namespace-%d", i))
	}
	save(t, s, many)
	assert.NotContains(t, shardOf(t, s, 0).Annotations, "applyset.kubernetes.io/additional-namespaces", "the list is too long")
}

// TestHugeInventoryIsSaved saves 50,000 objects with names of maximum length, which do not compress.
func TestHugeInventoryIsSaved(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	random := rand.NewChaCha8([32]byte{5})
	text := func(n int) string {
		b := make([]byte, n)
		_, _ = random.Read(b)
		return base64.RawURLEncoding.EncodeToString(b)[:n]
	}
	hash := func() (h ownership.Hash) {
		_, _ = random.Read(h[:])
		return h
	}
	inv := Inventory{Release: "1.0.0", Records: map[manifest.ID]Record{}}
	for range 50_000 {
		id := manifest.ID{Group: text(60), Kind: text(63), Namespace: text(63), Name: text(253)}
		inv.Records[id] = Record{ID: id, Version: text(10), Content: Content(hash()), Fields: hash(), Release: "1.0.0"}
	}
	number, err := shards(inv, 1, maxPlain)
	require.NoError(t, err)
	s := NewStore(nil, "x", "version")
	s.shardCount = number
	weights := weigh(inv, number)
	assert.LessOrEqual(t, slices.Max(weights), maxPlain)
	// This is the heaviest shard in bytes. The others cannot be much larger.
	p := s.prepare(inv)
	heaviest := slices.Index(weights, slices.Max(weights))
	data, err := s.encoder.encode(p.headers[heaviest], s.recordsByShard(inv, p)[heaviest])
	require.NoError(t, err)
	t.Logf("%d shards, the heaviest has %d records in %d bytes", number, p.prints[heaviest].count, len(data))
	assert.Less(t, len(data), 448<<10, "shards stay well below 512 KiB")
	_, records, err := decode(data)
	require.NoError(t, err)
	assert.Len(t, records, p.prints[heaviest].count)
	for _, r := range records {
		require.Equal(t, inv.Records[r.ID], r)
	}
}

// TestFullestShardIsAccepted saves a full shard whose content does not compress.
func TestFullestShardIsAccepted(t *testing.T) {
	random := rand.NewChaCha8([32]byte{6})
	var records []Record
	for total := 0; ; {
		raw := make([]byte, maxRecord/2)
		_, _ = random.Read(raw)
		r := Record{ID: manifest.ID{Kind: "K", Name: base64.RawURLEncoding.EncodeToString(raw)}}
		if total += weight(&r); total > maxPlain {
			break
		}
		records = append(records, r)
	}
	data, err := new(encoder).encode(header{Of: 1}, records)
	require.NoError(t, err)
	assert.Less(t, len(data), 400<<10)
	_, back, err := decode(data)
	require.NoError(t, err)
	assert.Equal(t, records, back)
}

// TestStoreReadersSeeEveryRemainingObject checks that readers always see every remaining object.
func TestStoreReadersSeeEveryRemainingObject(t *testing.T) {
	s, _, _ := newSmallStore(t)
	small := realLooking(20)
	large := small.With(slices.Collect(maps.Values(realLooking(220).Records))...)
	save(t, s, small)
	done := make(chan struct{})
	var reads atomic.Int32
	go func() {
		defer close(done)
		for i := 0; t.Context().Err() == nil && (i < 6 || reads.Load() < 4); i++ {
			assert.NoError(t, s.Save(t.Context(), []Inventory{large, small}[i%2]))
		}
	}()
	for running := true; running; reads.Add(1) {
		select {
		case <-done:
			running = false
		default:
		}
		seen, err := another(s).Load(t.Context())
		require.NoError(t, err)
		for id := range small.Records {
			require.Contains(t, seen.Records, id)
		}
	}
}

func TestParentAnnotationsReadBackEqual(t *testing.T) {
	notes := parentAnnotations([]schema.GroupKind{{Kind: "A"}, {Group: "b.c", Kind: "B"}}, []string{"x", "y"}, "y")
	assert.Equal(t, []schema.GroupKind{{Kind: "A"}, {Group: "b.c", Kind: "B"}}, parseKinds(notes[applySetKindsAnnotation]))
	assert.Equal(t, []string{"x"}, splitList(notes[applySetNamespacesAnnotation]))
	assert.Empty(t, parseKinds(""))
}
