package pointers_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/internal/pointers"
)

func TestPointersLeadToTheElements(t *testing.T) {
	values := []int{1, 2}
	*pointers.To(values)[1] = 3
	assert.Equal(t, []int{1, 3}, values)
	assert.Empty(t, pointers.To[int](nil))
}
