package inventory

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/fixture"
)

// render returns the bytes of all shards of an inventory.
func render(t testing.TB, inv Inventory, of int) [][]byte {
	t.Helper()
	s := NewStore(nil, "x", "version")
	s.shardCount, s.generation = of, 1
	p := s.prepare(inv)
	records := s.recordsByShard(inv, p)
	rendered := make([][]byte, of)
	for i := range rendered {
		var err error
		rendered[i], err = s.encoder.encode(p.headers[i], records[i])
		require.NoError(t, err)
	}
	return rendered
}

// randomRecord returns an arbitrary record, including impossible ones.
func randomRecord(random *rand.Rand) Record {
	text := func() string {
		const letters = "abcABC09-.:/ \"\\<>&\n\x00\u2028é日\U0001F600"
		runes := []rune(letters)
		b := make([]rune, random.IntN(12))
		for i := range b {
			b[i] = runes[random.IntN(len(runes))]
		}
		return string(b)
	}
	id := manifest.ID{Group: text(), Kind: "K" + text(), Namespace: text(), Name: "n" + text()}
	r := Record{ID: id, Version: text(), Release: text(), Reached: random.IntN(2) == 0}
	if random.IntN(3) > 0 {
		r.Content, r.Fields = Content(randomHash(random)), randomHash(random)
	}
	if random.IntN(3) == 0 {
		r.Dropped = text()
	}
	if random.IntN(3) > 0 {
		r.File, r.Document = text(), int(random.Uint64())
	}
	if random.IntN(3) > 0 {
		r.UID, r.ResourceVersion = types.UID(text()), text()
		r.Time, r.Generation = int64(random.Uint64()), int64(random.Uint64()) // any number, including negative ones
	}
	return r
}

func TestShardsOfRandomInventoriesReadBackEqual(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		inv := Inventory{Release: "1.0.0", Records: map[manifest.ID]Record{}}
		for range random.IntN(60) {
			r := randomRecord(random)
			inv.Records[r.ID] = r
		}
		of := 1 << random.IntN(4)
		first := render(t, inv, of)

		read := map[manifest.ID]Record{}
		for i, data := range first {
			h, records, err := decode(data)
			require.NoError(t, err, "seed %d", seed)
			require.Equal(t, header{Format: 1, Shard: i, Of: of, Generation: 1, Release: h.Release}, h)
			require.True(t, slices.IsSortedFunc(records, func(a, b Record) int { return Compare(a.ID, b.ID) }))
			for _, r := range records {
				require.NotContains(t, read, r.ID)
				read[r.ID] = r
			}
			plain, err := gzip.NewReader(bytes.NewReader(data))
			require.NoError(t, err)
			text, err := io.ReadAll(plain)
			require.NoError(t, err)
			limit := 200
			for _, r := range records {
				limit += weight(&r)
			}
			require.LessOrEqual(t, len(text), limit, "the weight is an upper bound; seed %d", seed)
		}
		require.Equal(t, inv.Records, read, "seed %d", seed)

		// Equal inventories have equal bytes, and one changed record changes one shard.
		require.Equal(t, first, render(t, Inventory{Release: "1.0.0", Records: maps.Clone(inv.Records)}, of))
		changed := randomRecord(random)
		if ids := slices.SortedFunc(maps.Keys(inv.Records), Compare); len(ids) > 0 && random.IntN(2) == 0 {
			changed.ID = ids[random.IntN(len(ids))]
		}
		second := render(t, inv.With(changed), of)
		for i := range second {
			require.Equal(t, i == assign(changed.ID, of), !bytes.Equal(first[i], second[i]), "seed %d, shard %d", seed, i)
		}
	}
}

func TestNumberOfShardsIsStable(t *testing.T) {
	inv := realLooking(10_000)
	of, err := shards(inv, 1, maxPlain)
	require.NoError(t, err)
	ids := slices.SortedFunc(maps.Keys(inv.Records), Compare)
	// The number of shards stays the same between a tenth less and a tenth more.
	for _, n := range []int{9000, 9999, 10_000} {
		some := inv.Forget(ids[n:]...)
		got, err := shards(some, of, maxPlain)
		require.NoError(t, err)
		assert.Equal(t, of, got, "%d records", n)
	}
	none, err := shards(Inventory{}, of, maxPlain)
	require.NoError(t, err)
	assert.Equal(t, 1, none)
}

func TestTooManyRecordsAreAnError(t *testing.T) {
	inv := Inventory{Records: map[manifest.ID]Record{}}
	// The hash assigns all these objects to one shard, no matter how many shards there are.
	for i := 0; len(inv.Records) < 60; i++ {
		id := manifest.ID{Kind: "ConfigMap", Name: strconv.Itoa(i)}
		if assign(id, maxShards) == 7 {
			inv.Records[id] = Record{ID: id, Release: strings.Repeat("1", maxRecord-1000)}
		}
	}
	_, err := shards(inv, 1, maxPlain)
	require.EqualError(t, err, "60 records do not fit into 1024 ConfigMaps")
}

func TestAssignmentToShardsNeverChanges(t *testing.T) {
	// Stored inventories depend on this assignment, so it must never change.
	id := manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "openshift-dns", Name: "dns"}
	assert.Equal(t, 264, assign(id, maxShards))
	assert.Equal(t, 212, assign(manifest.ID{Kind: "Node", Name: "a"}, maxShards))

	counts := make([]int, 16)
	for id := range realLooking(16_000).Records {
		i := assign(id, 32)
		assert.Equal(t, i%16, assign(id, 16), "doubling the number splits each shard in two")
		counts[i%16]++
	}
	for _, n := range counts {
		assert.InDelta(t, 1000, n, 150)
	}
}

func TestShardNamesAreParsed(t *testing.T) {
	for _, n := range []int{0, 1, 1023} {
		got, ok := parseShardName("version", shardName("version", n))
		assert.True(t, ok)
		assert.Equal(t, n, got)
	}
	for _, name := range []string{
		"version-inventory-", "version-inventory-01", "version-inventory--1", "version-inventory-+1", "version-inventory-1024",
		"version-inventory-a", "other-inventory-0", "version-inventory-99999999999999999999",
	} {
		_, ok := parseShardName("version", name)
		assert.False(t, ok, "%s", name)
	}
}

// TestRecordsStaySmall fails if a change of the format makes records larger.
func TestRecordsStaySmall(t *testing.T) {
	for _, n := range []int{1000, 10_000} {
		inv := realLooking(n)
		of, err := shards(inv, 1, maxPlain)
		require.NoError(t, err)
		total := 0
		for _, data := range render(t, inv, of) {
			total += len(data)
		}
		t.Logf("%d records: %d shards, %d bytes, %d bytes a record", n, of, total, total/n)
		assert.Less(t, total/n, 70, "bytes per record, including 32 for hashes")
	}
}

func TestInventoryOfARealReleaseStaysSmall(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(fixture.Testdata(t), "payloads/4.23.0/release-manifests/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	random := rand.New(rand.NewPCG(1, 1))
	inv := Inventory{Records: map[manifest.ID]Record{}}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		list, err := manifest.Parse(filepath.Base(file), data, manifest.Limits{})
		require.NoError(t, err)
		for _, m := range list {
			r := Record{ID: m.ID(), Version: m.GVK().Version, Content: ContentOf(m.Content), Fields: randomHash(random), Release: "4.23.0", Reached: true, File: m.File, Document: m.Document}
			inv.Records[r.ID] = r
		}
	}
	require.Greater(t, len(inv.Records), 500)
	of, err := shards(inv, 1, maxPlain)
	require.NoError(t, err)
	assert.Equal(t, 1, of, "a current release fits into one ConfigMap")
	data := render(t, inv, of)[0]
	t.Logf("%d records: %d bytes, %d bytes a record", len(inv.Records), len(data), len(data)/len(inv.Records))
	assert.Less(t, len(data)/len(inv.Records), 80)
}

//threat:inventory-damaged-forged
//threat:inventory-shards
func FuzzShard(f *testing.F) {
	inv := realLooking(5)
	for id, r := range inv.Records {
		r.Dropped = "4.24.0"
		inv = inv.With(r).Forget(id).With(r)
		break
	}
	for _, data := range render(f, inv, 2) {
		f.Add(data, true)
		plain, err := gzip.NewReader(bytes.NewReader(data))
		require.NoError(f, err)
		text, err := io.ReadAll(plain)
		require.NoError(f, err)
		f.Add(text, false)
	}
	f.Add([]byte(`{"format":1,"shard":0,"of":1,"generation":1}`+"\n"+`{"object":{"kind":"a","name":"b"},"content":"0"}`), false)
	f.Add([]byte(`{"format":1,"shard":-1,"of":-8}`), false)
	f.Add([]byte{0x1f, 0x8b}, true)
	f.Fuzz(func(t *testing.T, data []byte, compressed bool) {
		if !compressed {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(data)
			_ = z.Close()
			data = b.Bytes()
		}
		h, records, err := decode(data)
		if err != nil {
			return
		}
		// Decoded data can be encoded again, and decodes to the same result.
		require.Less(t, h.Shard, h.Of)
		again, err := new(encoder).encode(h, slices.Clone(records))
		require.NoError(t, err)
		h2, records2, err := decode(again)
		require.NoError(t, err)
		require.Empty(t, h2.unreadable)
		h.unreadable = ""
		require.Equal(t, h, h2)
		require.ElementsMatch(t, records, records2)
	})
}
