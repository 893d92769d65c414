package config

import (
	"reflect"
	"strings"
)

// Schema is the JSON schema of the file, for editors: `calve config schema`.
func Schema() map[string]any {
	s := schemaOf(reflect.TypeFor[Config](), "")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "calve configuration"
	return s
}

func schemaOf(t reflect.Type, enum string) map[string]any {
	switch t {
	case reflect.TypeFor[Duration]():
		return map[string]any{"type": "string", "pattern": `^([0-9.]+(ns|us|ms|s|m|h))+$`}
	case reflect.TypeFor[Size]():
		return map[string]any{"type": []string{"string", "integer"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), enum)
	case reflect.Struct:
		return structSchema(t)
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), "")}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"type": []string{"string", "number", "boolean"}}}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer", "minimum": 0}
	}
	s := map[string]any{"type": "string"}
	if enum != "" {
		s["enum"] = strings.Split(enum, ",")
	}
	return s
}

func structSchema(t reflect.Type) map[string]any {
	props, required := map[string]any{}, []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		p := schemaOf(f.Type, f.Tag.Get("enum"))
		p["description"] = f.Tag.Get("doc")
		if d := f.Tag.Get("default"); d != "" {
			p["default"] = defaultValue(f.Type, d)
		}
		key := f.Tag.Get("yaml")
		props[key] = p
		if f.Tag.Get("required") == "true" {
			required = append(required, key)
		}
	}
	s := map[string]any{"type": "object", "additionalProperties": false, "properties": props}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func defaultValue(t reflect.Type, def string) any {
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Bool, reflect.Int:
		setDefault(v, def)
		return v.Interface()
	}
	return def
}
