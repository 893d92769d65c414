package decode

import (
	"testing"

	"github.com/calve-io/calve/schema/schematest"
)

// TestWidenedDecimals: a decimal that does not fit asks for more digits in whichever form it comes.
func TestWidenedDecimals(t *testing.T) {
	for _, x := range []struct {
		how   Decimals
		value string
	}{
		{DecimalsText, `{"d":12345.67}`}, {DecimalsText, `{"d":"12345.67"}`},
		{DecimalsBinary, `{"d":"EtaH"}`}, // 1234567
	} {
		d, err := New(Config{Schema: schematest.Table(t, "", "d DECIMAL(5,2)"), Evolution: Evolve, Decimals: x.how})
		if err != nil {
			t.Fatal(err)
		}
		err = d.Decode(&Record{Value: []byte(x.value)})
		if err == nil || err.Error() != "the record needs another schema: change d to DECIMAL(7, 2)" || d.Rows() != 0 {
			t.Errorf("%s: %v, %d rows", x.value, err, d.Rows())
		}
	}
}
