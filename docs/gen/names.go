package main

import (
	"errors"
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// annotations lists the annotations and labels that the operator or the node stage reads or writes.
func annotations() (string, error) {
	sections, err := read(root+"pkg/api", "Annotations ", "Labels ")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, s := range sections {
		out.WriteString(s.table("| name | meaning |", none))
	}
	return out.String(), nil
}

// conditions lists the conditions and their reasons.
func conditions() (string, error) {
	var out strings.Builder
	for _, folder := range []string{root + "pkg/api", root + "pkg/update"} {
		sections, err := read(folder, "Condition", "Reasons for ")
		if err != nil {
			return "", err
		}
		for _, s := range sections {
			out.WriteString(s.table("| condition or reason | meaning |", none))
		}
	}
	return out.String(), nil
}

// events lists the events with their types.
func events() (string, error) {
	sections, err := read(root+"pkg/api", "Events ")
	if err != nil {
		return "", err
	}
	types, err := eventTypes(root + "pkg")
	var out strings.Builder
	for _, s := range sections {
		out.WriteString(s.table("| reason | type | when |", func(c constant) string {
			if len(types[c.name]) == 0 {
				err = errors.Join(err, fmt.Errorf("no call emits %s", c.name))
			}
			return strings.Join(slices.Sorted(maps.Keys(types[c.name])), ", ") + " | "
		}))
	}
	return out.String(), err
}

// eventTypes returns the types of the events below a folder by the name of their reason's constant. The reason is the first argument of
// event.Normal or event.Warning, or the third of an EventRecorder's method: a constant, or a call of a function that returns constants.
func eventTypes(folder string) (map[string]map[string]bool, error) {
	emitted, returned := map[string]map[string]bool{}, map[string][]string{}
	add := func(name, kind string) {
		if emitted[name] == nil {
			emitted[name] = map[string]bool{}
		}
		emitted[name][kind] = true
	}
	err := sources(folder, func(file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				returned[n.Name.Name] = append(returned[n.Name.Name], eventNames(n)...)
			case *ast.CallExpr:
				kind, reason := emittedBy(n)
				if kind == "" {
					return true
				}
				for _, name := range eventNames(reason) {
					add(name, kind)
				}
				if by, ok := reason.(*ast.CallExpr); ok {
					add(functionName(by), kind)
				}
			}
			return true
		})
	})
	for function, names := range returned {
		for kind := range emitted[function] {
			for _, name := range names {
				add(name, kind)
			}
		}
	}
	return emitted, err
}

// emittedBy returns the type and the reason of the event that a call emits; nothing if it emits none.
func emittedBy(call *ast.CallExpr) (kind string, reason ast.Expr) {
	switch name := functionName(call); {
	case (name == "Normal" || name == "Warning") && len(call.Args) > 0:
		return name, call.Args[0]
	case (name == "Event" || name == "Eventf") && len(call.Args) > 3:
		if selector, ok := call.Args[1].(*ast.SelectorExpr); ok && strings.HasPrefix(selector.Sel.Name, "EventType") {
			return strings.TrimPrefix(selector.Sel.Name, "EventType"), call.Args[2]
		}
	}
	return "", nil
}

func functionName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// eventNames returns the constants of reasons for events that a piece of code names.
func eventNames(code ast.Node) (names []string) {
	ast.Inspect(code, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(selector.Sel.Name, "Event") {
			names = append(names, selector.Sel.Name)
		}
		return true
	})
	return names
}
