package inventory

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkSave measures Save, which is called every few seconds during a rollout.
func BenchmarkSave(b *testing.B) {
	run := func(name string, records int, change bool) {
		b.Run(name, func(b *testing.B) {
			s, _, w := newStore(b)
			inv := realLooking(records)
			require.NoError(b, s.Save(b.Context(), inv))
			ids := slices.SortedFunc(maps.Keys(inv.Records), Compare)
			sent := 0
			w.drain()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if change {
					r := inv.Records[ids[i%len(ids)]]
					r.Reached = !r.Reached
					inv.Records[r.ID] = r
					i++
				}
				require.NoError(b, s.Save(b.Context(), inv))
			}
			sent = len(w.drain())
			b.ReportMetric(float64(sent)/float64(b.N), "requests/op")
		})
	}
	run("1300 unchanged", 1300, false)
	run("1300 one changed", 1300, true)
	run("10000 unchanged", 10_000, false)
	run("10000 one changed", 10_000, true)
}

// BenchmarkEncode measures the encoding of one changed shard with 1,300 records.
func BenchmarkEncode(b *testing.B) {
	records := slices.Collect(maps.Values(realLooking(1300).Records))
	var e encoder
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		data, err := e.encode(header{Of: 1}, records)
		require.NoError(b, err)
		size = len(data)
	}
	b.ReportMetric(float64(size), "bytes/shard")
}

func BenchmarkDecode(b *testing.B) {
	var e encoder
	data, err := e.encode(header{Of: 1}, slices.Collect(maps.Values(realLooking(1300).Records)))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, _, err := decode(data)
		require.NoError(b, err)
	}
}
