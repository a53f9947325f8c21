package payload

import (
	"bytes"
	"fmt"
	"path"
	"reflect"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// templater renders the operator's own manifests, which are Go templates over a few values.
type templater struct {
	values templateValues
	limits manifest.Limits
	strict bool
}

// templateValues are what templates of existing releases refer to, and BringYourOwnNetwork, which those of our own do.
type templateValues struct {
	ReleaseImage   string
	ClusterProfile string
	Images         map[string]string
	// BringYourOwnNetwork is Options.BringYourOwnNetwork.
	BringYourOwnNetwork bool
}

func newTemplater(image, profile string, images map[string]string, opts Options) *templater {
	if profile == "" {
		profile = api.DefaultProfile
	}
	return &templater{
		values: templateValues{
			ReleaseImage: image, ClusterProfile: profile, Images: images, BringYourOwnNetwork: opts.BringYourOwnNetwork,
		},
		limits: opts.Limits.WithDefaults(),
		strict: opts.TemplateErrors,
	}
}

// Render renders one file of the operator's own folder, as Load does for a cluster with this profile; image is the
// pullspec of the release and references those of its images by name.
func Render(file string, text []byte, image, profile string, references map[string]string) ([]byte, error) {
	return newTemplater(image, profile, references, Options{}).execute(path.Base(file), text)
}

// Bounds of one template; real ones have a handful of actions, and print a name or two.
const (
	// maxActions bounds how deep a template nests, too: whoever reads it goes as deep, and a stack that is used up ends
	// the process.
	maxActions = 10_000
	// maxPrinted bounds what print makes: a template that prints what it has printed would double it each time.
	maxPrinted = 64 << 10
)

// execute renders one file. Templates come from outside and run here, so only a subset is allowed whose cost is bound
// by its length: text, values, conditions and the functions of allowedFunction; no loops, no recursion, no printf (whose
// widths make megabytes of nothing).
func (t *templater) execute(name string, text []byte) ([]byte, error) {
	if actions := bytes.Count(text, []byte("{{")); actions > maxActions {
		return nil, fmt.Errorf("reading template: it has %d actions, the limit is %d", actions, maxActions)
	}
	functions := template.FuncMap{"index": imageIndex, "print": (&printer{left: maxPrinted}).print}
	tmpl, err := template.New(name).Option("missingkey=error").Funcs(functions).Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("reading template: %w", err)
	}
	if len(tmpl.Templates()) > 1 {
		return nil, fmt.Errorf("reading template: defines templates, which this operator does not run")
	}
	if tmpl.Tree == nil || tmpl.Root == nil {
		return nil, nil // nothing but space and comments
	}
	if err := checkNode(tmpl.Root); err != nil {
		return nil, fmt.Errorf("reading template: %w", err)
	}
	out := limitedBuffer{limit: t.limits.FileBytes}
	if err := tmpl.Execute(&out, t.values); err != nil {
		return nil, fmt.Errorf("executing template: %w", err)
	}
	return out.Bytes(), nil
}

// imageIndex replaces the built-in index: a name that the release does not list is an error, not an empty pullspec.
func imageIndex(images map[string]string, name string) (string, error) {
	pullspec, ok := images[name]
	if !ok {
		return "", fmt.Errorf("the release has no image %q", name)
	}
	return pullspec, nil
}

// printer replaces the built-in print by one that makes no more than so many bytes.
type printer struct{ left int }

func (p *printer) print(values ...any) (string, error) {
	var out strings.Builder
	for i, v := range values {
		text := fmt.Sprint(v)
		if i > 0 && !isText(v) && !isText(values[i-1]) {
			text = " " + text // as fmt.Sprint has it
		}
		if p.left -= len(text); p.left < 0 {
			return "", fmt.Errorf("it prints more than %d bytes", maxPrinted)
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

func isText(v any) bool { return reflect.ValueOf(v).Kind() == reflect.String }

func allowedFunction(name string) bool {
	switch name {
	case "index", "eq", "ne", "and", "or", "not", "print":
		return true
	}
	return false
}

// checkNode walks a template's tree and refuses everything that is not known to be cheap.
func checkNode(node parse.Node) error {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		return checkNodes(n.Nodes)
	case *parse.ActionNode:
		return checkNode(n.Pipe)
	case *parse.IfNode:
		return checkBranch(&n.BranchNode)
	case *parse.WithNode:
		return checkBranch(&n.BranchNode)
	case *parse.PipeNode:
		for _, command := range n.Cmds {
			if err := checkNodes(command.Args); err != nil {
				return err
			}
		}
		return nil
	case *parse.IdentifierNode:
		if !allowedFunction(n.Ident) {
			return fmt.Errorf("function %q is not available", n.Ident)
		}
		return nil
	case *parse.ChainNode:
		return checkNode(n.Node)
	case *parse.TextNode, *parse.CommentNode, *parse.FieldNode, *parse.VariableNode, *parse.DotNode, *parse.StringNode,
		*parse.BoolNode, *parse.NumberNode, *parse.NilNode:
		return nil
	default:
		return fmt.Errorf("%q is not available", node)
	}
}

func checkNodes(nodes []parse.Node) error {
	for _, n := range nodes {
		if err := checkNode(n); err != nil {
			return err
		}
	}
	return nil
}

func checkBranch(n *parse.BranchNode) error {
	return checkNodes([]parse.Node{n.Pipe, n.List, n.ElseList})
}

// limitedBuffer refuses to grow beyond its limit.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, fmt.Errorf("the result has more than %d bytes", b.limit)
	}
	return b.Buffer.Write(p)
}
