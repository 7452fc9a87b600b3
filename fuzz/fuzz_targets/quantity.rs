//! Amounts: what is read can be written and read again, and never wraps.
#![no_main]

use glovebox::api::Quantity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    let quantity = Quantity::new(input);
    if let Ok(milli) = quantity.milli() {
        assert!(input.len() <= 21, "{input:?}");
        let units = quantity.units().expect("less than its thousandths");
        assert_eq!(units, milli.div_ceil(1000));
        // Fifteen digits are read, so that what is written beyond is refused rather than misread.
        if let Ok(again) = Quantity::from_milli(milli).milli() {
            assert_eq!(again, milli);
        }
        if let Ok(again) = Quantity::from_bytes(units).units() {
            assert_eq!(again, units);
        }
    }
});
