package api_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
)

func TestFinalizersNameTheGarbageCollector(t *testing.T) {
	assert.Equal(t, "example.com/hold, foregroundDeletion (kube-controller-manager removes it), orphan (kube-controller-manager removes it)",
		api.FinalizersText([]string{"example.com/hold", "foregroundDeletion", "orphan"}))
}
