"""Reading what compilers report of kernels."""

from __future__ import annotations

import pytest

from dscore.building import reports
from dscore.building.reports import Report
from dscore.core.plan import ResourceUse

# What hipcc 5.2.3 (clang 15) printed for gfx90a, source lines left out.
HIP_LOG = """\
1_b.cpp:5:1: warning: unused variable 'q' [-Wunused-variable]
k.cpp:3:1: remark: Function Name: n1c64_spill [-Rpass-analysis=kernel-resource-usage]
extern "C" __global__ __launch_bounds__(256) void n1c64_spill(const float* a, float* b, int n){
^
k.cpp:3:1: remark:     SGPRs: 21 [-Rpass-analysis=kernel-resource-usage]
k.cpp:3:1: remark:     VGPRs: 6 [-Rpass-analysis=kernel-resource-usage]
k.cpp:3:1: remark:     AGPRs: 2 [-Rpass-analysis=kernel-resource-usage]
k.cpp:3:1: remark:     ScratchSize [bytes/lane]: 1216 [-Rpass-analysis=kernel-resource-usage]
k.cpp:3:1: remark:     Occupancy [waves/SIMD]: 8 [-Rpass-analysis=kernel-resource-usage]
k.cpp:3:1: remark:     SGPRs Spill: 4 [-Rpass-analysis=kernel-resource-usage]
k.cpp:3:1: remark:     VGPRs Spill: 3 [-Rpass-analysis=kernel-resource-usage]
k.cpp:3:1: remark:     LDS Size [bytes/block]: 0 [-Rpass-analysis=kernel-resource-usage]
k.cpp:2:1: remark: Function Name: _Z4kernILi16EEvPKfPf [-Rpass-analysis=kernel-resource-usage]
k.cpp:2:1: remark:     SGPRs: 20 [-Rpass-analysis=kernel-resource-usage]
k.cpp:2:1: remark:     VGPRs: 19 [-Rpass-analysis=kernel-resource-usage]
k.cpp:2:1: remark:     ScratchSize [bytes/lane]: 0 [-Rpass-analysis=kernel-resource-usage]
k.cpp:2:1: remark:     Occupancy [waves/SIMD]: 10 [-Rpass-analysis=kernel-resource-usage]
k.cpp:2:1: remark:     LDS Size [bytes/block]: 1024 [-Rpass-analysis=kernel-resource-usage]
1 warning generated when compiling for gfx90a.
"""

# What nvcc 13.0 printed for sm_90; the function between is of ptxas' form for one that is called.
PTXAS_LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4kernILi16EEvPKfPf' for 'sm_90'
ptxas info    : Function properties for _Z4kernILi16EEvPKfPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 26.180 ms
ptxas info    : Compiling entry function 'lots' for 'sm_90'
ptxas info    : Function properties for called
    16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for lots
    720 bytes stack frame, 1692 bytes spill stores, 1672 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 720 bytes cumulative stack size
"""


def test_the_report_of_hipcc():
    found = reports.parse(HIP_LOG)
    kern = Report("_Z4kernILi16EEvPKfPf", 19, 1024, 0, 0, 10)
    assert found == {"n1c64_spill": Report("n1c64_spill", 6, 0, 3, 1216, 8, 2, 4),
                     kern.symbol: kern}
    assert reports.matching(found, "kern") == (kern,)
    assert [report.symbol for report in reports.matching(found, "")] == sorted(found)
    use = found["n1c64_spill"].use(ResourceUse(256, 4, 1024, 80))
    # 1,216 B of scratch memory are more than the 3 registers that were spilled.
    assert use == ResourceUse(256, 4, 1024, 8, 304, reported=True)


def test_the_report_of_ptxas():
    assert reports.parse(PTXAS_LOG) == {
        "_Z4kernILi16EEvPKfPf": Report("_Z4kernILi16EEvPKfPf", 30, 1024, 0, 0),
        "lots": Report("lots", 32, 0, 423, 720)}


@pytest.mark.parametrize("log", ["", "error: nothing", HIP_LOG[:200], PTXAS_LOG[:150]])
def test_a_log_without_a_whole_report_reports_nothing(log):
    assert reports.parse(log) == {}
