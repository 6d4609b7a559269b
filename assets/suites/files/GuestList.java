import java.util.ArrayList;
import java.util.List;

public class GuestList {
    private String event;
    private int places;
    private ArrayList<String> guests = new ArrayList<String>();
    private ArrayList<String> waiting = new ArrayList<String>();

    public GuestList(String event, int places) {
        this.event = event;
        this.places = places;
    }

    public boolean add(String name) {
        if (guests.contains(name) || waiting.contains(name)) {
            return false;
        }
        if (guests.size() < places) {
            guests.add(name);
        } else {
            waiting.add(name);
        }
        return true;
    }

    public boolean cancel(String name) {
        if (waiting.remove(name)) {
            return true;
        }
        if (guests.remove(name)) {
            if (waiting.size() > 0) {
                guests.add(waiting.remove(0));
            }
            return true;
        }
        return false;
    }

    public int free() {
        return places - guests.size();
    }

    public List<String> getGuests() {
        return guests;
    }

    public List<String> getWaiting() {
        return waiting;
    }

    public String toString() {
        String text = event + ": " + guests.size() + " of " + places + " places taken\n";
        for (int i = 0; i < guests.size(); i++) {
            text += (i + 1) + ". " + guests.get(i) + "\n";
        }
        for (int i = 0; i < waiting.size(); i++) {
            text += "waiting " + (i + 1) + ". " + waiting.get(i) + "\n";
        }
        return text;
    }
}
