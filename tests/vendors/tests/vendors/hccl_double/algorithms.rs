//! Algorithms by name, over the double's messages in batches, with aclnn's operators on its streams.

use unisono_tests::doubles::HcclDouble;

// Sums and products of 6 types, least and largest of 5, and one pre-multiplied sum.
unisono_tests::algorithms_on_device!(HcclDouble, 23);
