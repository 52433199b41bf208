// The galleries that a page may have: the panel's own, or the host's.

const HOSTS = ["txt2img", "img2img", "extras"];

// How many images stand before the first that was made: a host puts its grid there.
function gridCount(tab) {
  const text = document.querySelector(`#generation_info_${tab} textarea`)?.value;
  try {
    return Number(JSON.parse(text).index_of_first_image) || 0;
  } catch {
    return 0;
  }
}

export function findGalleries() {
  const own = document.getElementById("spillway-gallery");
  if (own) return [{ element: own, grids: () => [] }];
  return HOSTS.map((tab) => ({ tab, element: document.getElementById(`${tab}_gallery`) }))
    .filter(({ element }) => element !== null)
    .map(({ tab, element }) => ({
      element,
      grids: () => [...element.querySelectorAll(".thumbnail-lg img")].slice(0, gridCount(tab)).map((image) => image.src),
    }));
}
