"""What gfx906 machine code may pass on that was never written, and that nobody may use it."""

import numpy as np
from machine_programs import LANES, address, fault, run


def test_what_no_lane_has_may_be_moved_but_not_used():
    """Compilers move registers for all lanes that only some go on with."""
    move = """
    s_mov_b64 exec, s[8:9]
    v_mov_b32 v1, 5
    v_mov_b32 v2, 7
    s_mov_b64 exec, -1
    v_mov_b32 v3, 1
    v_mov_b32 v3, v1
    s_mov_b64 exec, s[8:9]
    """
    given = {"scalars": {8: 0xFF, 9: 0}}
    assert run(move + "v_add_u32 v4, v3, v2", **given).v[4][0, :8].tolist() == [12] * 8
    used = move + "s_mov_b64 exec, -1\nv_not_b32 v4, v3"
    fault(used, "reads v3, which was never written", **given)
    # Lanes that do not execute keep what they had.
    kept = move.replace("s_mov_b64 exec, -1\n    v_mov_b32 v3, 1\n", "s_mov_b64 exec, -1\n"
                        "v_mov_b32 v3, 1\ns_mov_b64 exec, s[8:9]\n")
    assert run(kept + "s_mov_b64 exec, -1\nv_add_u32 v4, v3, 1", **given).v[4][0].tolist() == (
        [6] * 8 + [2] * 56)
    late = "global_load_dword v3, v1, s[4:5]\nv_mov_b32 v4, v3"
    fault(late, "touches v3, which a load is still to deliver", vectors={1: [0] * LANES},
          scalars=address(0), arrays=[("x", np.zeros(LANES, np.float32), False)])


def test_what_no_lane_has_may_be_selected_from_but_not_used():
    """Compilers select for all lanes; the operand that a lane does not take may be undefined."""
    select = """
    s_mov_b64 exec, s[8:9]
    v_mov_b32 v1, 5
    s_mov_b64 exec, -1
    v_cndmask_b32_e64 v3, v2, v1, s[8:9]
    v_cndmask_b32_e64 v4, 7, v1, s[8:9]
    """
    given = {"scalars": {8: 0xFF, 9: 0}, "vectors": {2: [9] * LANES}}
    after = run(select + "v_add_u32 v5, v3, v4", **given)
    assert after.v[5][0].tolist() == [10] * 8 + [16] * (LANES - 8)
    wrong = select.replace("v2, v1, s[8:9]", "v1, v2, s[8:9]")
    run(wrong, **given)
    fault(wrong + "v_not_b32 v5, v3", "reads v3, which was never written", **given)
    unknown = select.replace("exec, s[8:9]\n", "exec, s[10:11]\n")
    given["scalars"] |= {10: 0xF, 11: 0}
    fault(unknown + "v_not_b32 v5, v4", "reads v4, which was never written", **given)


def test_the_upper_half_of_a_multiply_add_may_be_undefined_if_nobody_reads_it():
    text = "v_mad_u64_u32 v[4:5], s[8:9], v0, 3, v[1:2]\nv_mov_b32 v6, v4"
    assert run(text, {1: np.arange(LANES)}).v[6][0].tolist() == [4 * n for n in range(LANES)]
    used = text.replace("v_mov_b32 v6, v4", "v_not_b32 v6, v5")
    fault(used, "reads v5, which was never", vectors={1: [0] * LANES})
    fault(text + "\ns_mov_b64 s[10:11], s[8:9]", "reads s8, which", vectors={1: [0] * LANES})
