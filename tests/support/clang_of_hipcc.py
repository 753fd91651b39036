"""The clang that hipcc starts, where it is here as well."""

import re
from functools import lru_cache

from dscore.building import amd_compilers, compilers
from dscore.core.errors import DscoreError


def pairs():
    """Each hipcc with a clang of its release, by their paths."""
    releases = {one.path: re.search(r"clang version (\d+)", one.version)
                for one in compilers.all_compilers("hip")}
    release_of = {path: named[1] for path, named in releases.items() if named}
    return [(hipcc, clang) for hipcc in release_of for clang in release_of
            if release_of[hipcc] == release_of[clang]
            and (amd_compilers.is_clang(hipcc), amd_compilers.is_clang(clang)) == (False, True)]


@lru_cache(maxsize=1)
def clang_of_hipcc():
    """Path of the clang of the hipcc that would be taken; None where there is none."""
    try:
        taken = compilers.find_compiler("hip", architecture="gfx906").path
        return dict(pairs()).get(taken)
    except DscoreError:
        return None
