package identity

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/release"
)

// TestEvidenceSurvivesTheRecord fills every field, so it fails for a new field that the record does not store.
func TestEvidenceSurvivesTheRecord(t *testing.T) {
	want := release.Evidence{SignedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	value := reflect.ValueOf(&want).Elem()
	for i := range value.NumField() {
		if field := value.Field(i); field.Kind() == reflect.String {
			field.SetString(value.Type().Field(i).Name)
		}
	}
	got := releaseEvidence(RecordedEvidence([]release.Evidence{want, {}}))
	assert.Equal(t, []release.Evidence{want, {}}, got)
	assert.Nil(t, releaseEvidence(RecordedEvidence(nil)))
}
