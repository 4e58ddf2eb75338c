// The colours of the page: those of the system, or what a person chose in this browser. No module, because modules run
// only after the page was drawn.

(() => {
  const PLACE = "whet-theme";
  const CHOICES = ["light", "dark"];
  const root = document.documentElement;

  function remembered() {
    try {
      return localStorage.getItem(PLACE);
    } catch {
      return null;
    }
  }

  function remember(choice) {
    try {
      if (CHOICES.includes(choice)) localStorage.setItem(PLACE, choice);
      else localStorage.removeItem(PLACE);
    } catch {
      // A browser without storage keeps it for this page.
    }
  }

  function use(choice) {
    if (CHOICES.includes(choice)) root.dataset.theme = choice;
    else delete root.dataset.theme;
  }

  use(remembered());
  document.addEventListener("DOMContentLoaded", () => {
    const field = document.getElementById("theme");
    field.value = root.dataset.theme ?? "system";
    field.addEventListener("change", () => {
      remember(field.value);
      use(field.value);
    });
  });
})();
