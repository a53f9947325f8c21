// Package health takes an expression of the Common Expression Language and a Node. It returns whether the Node is healthy, or why that is unknown.
// Package policy decides what follows. Commands import that package, and must not contain the evaluator of this one.
package health

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxCost limits an evaluation to about 10 ms. Kubernetes allows ten times as much for one object of an admission policy, but a pool has many nodes.
const maxCost = 100_000

// variable is the name of the Node in expressions.
const variable = "node"

// Check is an expression about a Node. It is safe for concurrent use.
type Check struct{ program cel.Program }

// Compile returns the check of an expression. The error has the position of the first mistake.
func Compile(expression string) (*Check, error) {
	env, err := cel.NewEnv(cel.Variable(variable, cel.DynType))
	if err != nil {
		return nil, fmt.Errorf("preparing CEL: %w", err)
	}
	parsed, issues := env.Parse(expression)
	if err := first(issues); err != nil {
		return nil, err
	}
	checked, issues := env.Check(parsed)
	if err := first(issues); err != nil {
		return nil, err
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("its result is of type %s instead of bool", t)
	}
	// Of int(node.metadata.labels['a']), the checked expression would accept no string: it infers the type of what a dynamic map contains from its use.
	program, err := env.Program(parsed, cel.CostLimit(maxCost))
	if err != nil {
		return nil, err
	}
	return &Check{program}, nil
}

// first returns the first mistake in an expression; nil if there is none.
func first(issues *cel.Issues) error {
	found := issues.Errors()
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("line %d, column %d: %s", found[0].Location.Line(), found[0].Location.Column()+1, found[0].Message)
}

// IsHealthy reports whether the expression is true for a node. The error says why it cannot be evaluated, for example because the node lacks a field.
func (c *Check) IsHealthy(n *corev1.Node) (bool, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	if err != nil {
		return false, fmt.Errorf("converting the Node: %w", err)
	}
	value, _, err := c.program.Eval(map[string]any{variable: object})
	if err != nil {
		return false, err
	}
	result, ok := value.(types.Bool)
	if !ok {
		return false, fmt.Errorf("its result is of type %s instead of bool", value.Type().TypeName())
	}
	return bool(result), nil
}
